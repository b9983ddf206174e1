#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/rows/gated_norm_vec16.h"

namespace headrace {

void gated_norm_row_avx2(const GatedNormRow& row) { gated_norm_row(row); }

}  // namespace headrace
