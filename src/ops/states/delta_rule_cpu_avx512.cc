#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/states/delta_rule_vec16.h"

namespace headrace {

void delta_head_avx512(const DeltaHead& head) { delta_head(head); }

}  // namespace headrace
