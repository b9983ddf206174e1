#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/states/rg_lru_vec16.h"

namespace headrace {

void lru_channels_avx2(const LruChannels& channels) { lru_channels(channels); }

}  // namespace headrace
