// What calibration texts say of the inputs of a layer's matrices: the sums of x x^T, of |x| and of
// x^2 over all rows x, so that no inputs are kept.
#pragma once

#include <string>
#include <vector>

#include "quantize/layer_runner.h"
#include "quantize/matrix_math.h"

namespace headrace {

// Of matrices that are multiplied by the same x [K].
struct InputStatistics {
  std::vector<std::string> matrices;  // their tensors: "blk.0.attn_q.weight"
  Matrix h;                           // [K, K] sum of x x^T, symmetric; empty where not asked for
  std::vector<double> magnitudes;     // [K] sum of |x|
  std::vector<double> squares;        // [K] sum of x^2
  int64_t rows = 0;                   // how many x
  int64_t columns() const { return std::ssize(magnitudes); }
};

class InputCollector final : public LayerInputs {
 public:
  // `with_products`: also x x^T, which costs most.
  InputCollector(MatrixMath& math, bool with_products)
      : math_(math), with_products_(with_products) {}

  Status begin(std::span<const MatrixStack> sites) override;
  void add(int32_t site, const ConstTensorView& x) override;
  // One entry a site. Errors: memory.
  Result<std::vector<InputStatistics>> finish();

 private:
  struct Site {
    InputStatistics sums;
    Matrix turned;     // [K, kRows] of the latest x, columns first
    int64_t held = 0;  // of its columns
  };
  void hold(Site& site, const ConstTensorView& x, int64_t first, int64_t count);
  Status add_held(Site& site);

  MatrixMath& math_;
  const bool with_products_;
  std::vector<Site> sites_;
  Status status_;  // of what ran in add()
};

}  // namespace headrace
