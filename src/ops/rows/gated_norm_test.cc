#include "ops/rows/gated_norm.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::gated_norm_test {
namespace {

struct NormCase {
  GatedNorm norm;
  int64_t columns;
  int64_t groups;
};

TestMatrix expected_of(const NormCase& c, const TestMatrix& x, const TestMatrix& gate,
                       const std::vector<float>& weight, float eps, float gate_scale) {
  TestMatrix out = x;
  const int64_t group = c.columns / c.groups;
  const auto silu = [&](int64_t t, int64_t i) {
    const double g = double{gate_scale} * gate.at(t, i);
    return g / (1 + std::exp(-g));
  };
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t first = 0; first < c.columns; first += group) {
      double squares = 0;
      for (int64_t i = first; i < first + group; ++i) {
        const double y = x.at(t, i) * (c.norm == GatedNorm::kBehindGate ? silu(t, i) : 1.0);
        squares += y * y;
      }
      double rms = std::sqrt(squares / static_cast<double>(group) + eps);
      if (c.norm == GatedNorm::kNone) rms = 1;
      for (int64_t i = first; i < first + group; ++i) {
        out.at(t, i) =
            static_cast<float>(x.at(t, i) * silu(t, i) / rms * weight[static_cast<size_t>(i)]);
      }
    }
  }
  return out;
}

TEST(GatedNorm, EveryKernelIsNearDoubles) {
  constexpr float kEps = 1e-3f, kGateScale = 0.7f;
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const GatedNorm norm : {GatedNorm::kNone, GatedNorm::kBehindGate, GatedNorm::kBeforeGate}) {
    for (const auto& [columns, groups] : {std::pair<int64_t, int64_t>{1, 1}, {48, 2}, {100, 1}}) {
      const NormCase c{norm, columns, groups};
      Rng rng(static_cast<uint64_t>(columns));
      constexpr int64_t kRows = 9;
      const TestMatrix x(rng, kRows, columns);
      TestMatrix gate(rng, kRows, columns, 4.0f);
      const std::vector<float> weight = random_floats(rng, columns);
      const TestMatrix expected = expected_of(c, x, gate, weight, kEps, kGateScale);
      for (const auto& kernel : gated_norm_kernels().all()) {
        TestMatrix gated = x;
        const GatedNormArgs args{.x = gated.view(),
                                 .gate = gate.view(),
                                 .weight = weight.data(),
                                 .norm = norm,
                                 .group = columns / groups,
                                 .eps = kEps,
                                 .gate_scale = kGateScale};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE(testing::Message() << kernel.name << ", " << columns << " columns");
        kernel.run(context, args);
        EXPECT_TRUE(gated.gaps_untouched());
        EXPECT_TRUE(all_close(gated, expected, 1e-6, 1e-5));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::gated_norm_test
