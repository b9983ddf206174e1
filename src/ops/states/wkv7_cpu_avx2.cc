#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/states/wkv7_vec16.h"

namespace headrace {

void wkv7_head_avx2(const Wkv7Head& head) { wkv7_head(head); }

}  // namespace headrace
