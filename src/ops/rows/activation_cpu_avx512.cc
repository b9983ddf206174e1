#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/rows/activation_vec16.h"

namespace headrace {

void gated_activation_row_avx512(const GatedActivationRow& row) { gated_activation_row(row); }

}  // namespace headrace
