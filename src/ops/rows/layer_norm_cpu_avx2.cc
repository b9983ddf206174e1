#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/rows/layer_norm_vec16.h"

namespace headrace {

void layer_norm_rows_avx2(const LayerNormRows& rows) { layer_norm_rows(rows); }

}  // namespace headrace
