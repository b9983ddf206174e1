#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/rows/sigmoid_gate_vec16.h"

namespace headrace {

void sigmoid_gate_row_avx512(const SigmoidGateRow& row) { sigmoid_gate_row(row); }

}  // namespace headrace
