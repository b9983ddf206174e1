#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/rows/soft_cap_vec16.h"

namespace headrace {

void soft_cap_row_avx512(const SoftCapRow& row) { soft_cap_row(row); }

}  // namespace headrace
