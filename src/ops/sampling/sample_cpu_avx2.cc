#include "ops/vec16_avx2.h"
// The body is written in the vocabulary above.
#include "ops/sampling/logit_math_vec16.h"

namespace headrace {

const LogitMath kLogitMathAvx2 = {block_maxima, exp_weights};

}  // namespace headrace
