#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/sampling/logit_math_vec16.h"

namespace headrace {

const LogitMath kLogitMathAvx512 = {block_maxima, exp_weights};

}  // namespace headrace
