#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/kimi_delta_vec16.h"

namespace headrace {

void kimi_delta_head_avx512(const KimiDeltaHead& head) { kimi_delta_head(head); }

}  // namespace headrace
