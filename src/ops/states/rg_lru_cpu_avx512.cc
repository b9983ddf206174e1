#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/rg_lru_vec16.h"

namespace headrace {

void lru_channels_avx512(const LruChannels& channels) { lru_channels(channels); }

}  // namespace headrace
