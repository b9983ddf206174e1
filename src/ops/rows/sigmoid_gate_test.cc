#include "ops/rows/sigmoid_gate.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace {
namespace {

TEST(SigmoidGate, EveryKernelIsNearDoubles) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
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
      for (const auto& kernel : sigmoid_gate_kernels().all()) {
        TestMatrix gated = x;
        const SigmoidGateArgs args{gated.view(), gate.view()};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE(kernel.name);
        kernel.run(context, args);
        EXPECT_TRUE(gated.gaps_untouched());
        EXPECT_TRUE(all_close(gated, expected, 1e-30, 1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace headrace
