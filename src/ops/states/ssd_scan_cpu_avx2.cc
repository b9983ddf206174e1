#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/states/ssd_scan_vec16.h"

namespace headrace {

void ssd_head_avx2(const SsdHead& head) { ssd_head(head); }

}  // namespace headrace
