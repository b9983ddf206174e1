#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/states/selective_scan_vec16.h"

namespace headrace {

void scan_channels_avx2(const ScanChannels& channels) { scan_channels(channels); }

}  // namespace headrace
