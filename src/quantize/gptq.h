// GPTQ (Frantar et al., 2022): columns are rounded one after the other, and what rounding a column
// changed in the products is taken up by the columns that are still to come:
//   d = (w_j - quant(w_j)) / U_jj;  w_k -= d U_jk, k > j;  H^-1 = U^T U, H = X^T X of the inputs.
#pragma once

#include "quantize/integer_matrix.h"

namespace headrace {

struct GptqOptions {
  // Columns of large inputs first, while there are others to take up their errors. Groups stay runs
  // of columns, whose scales are those of the weights as they were ("static groups"): readers need
  // no order of columns.
  bool act_order = false;
  double damping = 0.01;  // of each element of the diagonal of H, added to it: of their mean it
                          // would be all that is left of small inputs beside a few huge ones
};

// `weights` [N, K], `h` [K, K], its upper triangle. Columns that no input ever had are rounded to
// nearest. Errors: kInvalidArgument where H with its damping is not positive definite.
Result<IntegerMatrix> quantise_gptq(MatrixMath& math, Matrix weights, const Matrix& h,
                                    const IntegerGrid& grid, const GptqOptions& options);

}  // namespace headrace
