#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/states/delta_rule_vec16.h"

namespace headrace {

void delta_head_avx2(const DeltaHead& head) { delta_head(head); }

}  // namespace headrace
