#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/ssd_scan_vec16.h"

namespace headrace {

void ssd_head_avx512(const SsdHead& head) { ssd_head(head); }

}  // namespace headrace
