#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/rows/rms_norm_vec16.h"

namespace headrace {

void rms_norm_rows_avx2(const RmsNormRows& rows) { rms_norm_rows(rows); }

}  // namespace headrace
