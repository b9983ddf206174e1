#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/attention/rope_kv_vec16.h"

namespace headrace {

void rope_kv_row_avx2(const RopeKvRow& row) { rope_kv_row(row); }

}  // namespace headrace
