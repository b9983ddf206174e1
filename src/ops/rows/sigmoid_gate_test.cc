#include "ops/rows/sigmoid_gate.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::sigmoid_gate_test {
namespace {

// `args` of a copy of `x` each.
void expect_of_every_kernel(TestDevice& device, SigmoidGateArgs args, const TestMatrix& x,
                            const TestMatrix& expected) {
  OpContext context = device.context();
  for (const auto& kernel : sigmoid_gate_kernels().all()) {
    TestMatrix gated = x;
    args.x = gated.view();
    if (!kernel.supports(device.device().traits(), args)) continue;
    SCOPED_TRACE(kernel.name);
    kernel.run(context, args);
    EXPECT_TRUE(gated.gaps_untouched());
    EXPECT_TRUE(all_close(gated, expected, 1e-30, 1e-6));
  }
}

TEST(SigmoidGate, EveryKernelIsNearDoubles) {
  TestDevice device = TestDevice::cpu(2);
  for (const int64_t rows : {1, 40}) {
    for (const int64_t columns : {1, 16, 100}) {
      Rng rng(static_cast<uint64_t>(rows + columns));
      const TestMatrix x(rng, rows, columns);
      TestMatrix gate(rng, rows, columns, 8.0f);
      gate.at(0, 0) = 200;  // all, and nothing
      gate.at(rows - 1, columns - 1) = -200;
      TestMatrix expected = x;
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t i = 0; i < columns; ++i) {
          expected.at(t, i) =
              static_cast<float>(x.at(t, i) / (1 + std::exp(-double{gate.at(t, i)})));
        }
      }
      expect_of_every_kernel(device, {.x = {}, .gate = gate.view()}, x, expected);
    }
  }
}

// One gate a head, and softplus in place of the sigmoid.
TEST(SigmoidGate, AGateMayBeOfSeveralColumns) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int64_t kRows = 9, kGates = 5;
  for (const GateKind kind : {GateKind::kSigmoid, GateKind::kSoftplus}) {
    for (const int64_t of_gate : {1, 8, 16, 37}) {
      Rng rng(static_cast<uint64_t>(of_gate));
      TestMatrix x(rng, kRows, kGates * of_gate);
      TestMatrix gate(rng, kRows, kGates, 8.0f);
      gate.at(0, 0) = 200;
      gate.at(kRows - 1, kGates - 1) = -200;
      TestMatrix expected = x;
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t i = 0; i < kGates * of_gate; ++i) {
          const double g = gate.at(t, i / of_gate);
          const double softplus = std::max(g, 0.0) + std::log1p(std::exp(-std::abs(g)));
          const double factor = kind == GateKind::kSoftplus ? softplus : 1 / (1 + std::exp(-g));
          expected.at(t, i) = static_cast<float>(x.at(t, i) * factor);
        }
      }
      SCOPED_TRACE(of_gate);
      expect_of_every_kernel(device, {.x = {}, .gate = gate.view(), .kind = kind}, x, expected);
    }
  }
}

}  // namespace
}  // namespace headrace::sigmoid_gate_test
