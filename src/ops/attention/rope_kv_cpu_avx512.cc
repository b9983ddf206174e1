#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/attention/rope_kv_vec16.h"

namespace headrace {

void rope_kv_row_avx512(const RopeKvRow& row) { rope_kv_row(row); }

}  // namespace headrace
