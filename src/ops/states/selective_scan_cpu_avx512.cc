#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/selective_scan_vec16.h"

namespace headrace {

void scan_channels_avx512(const ScanChannels& channels) { scan_channels(channels); }

}  // namespace headrace
