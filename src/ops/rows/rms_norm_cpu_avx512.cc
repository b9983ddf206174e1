#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/rows/rms_norm_vec16.h"

namespace headrace {

void rms_norm_rows_avx512(const RmsNormRows& rows) { rms_norm_rows(rows); }

}  // namespace headrace
