#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/attention/full_attention_vec16.h"

namespace headrace {

void attend_full_avx512(const FullAttentionHead& head) { attend_full(head); }

}  // namespace headrace
