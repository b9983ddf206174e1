#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/causal_conv_vec16.h"

namespace headrace {

void causal_conv_channels_avx512(const ConvChannels& channels) { causal_conv_channels(channels); }

}  // namespace headrace
