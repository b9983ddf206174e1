#include "ops/rows/soft_cap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::soft_cap_test {
namespace {

TEST(SoftCap, EveryKernelIsCapTanh) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t columns : {1, 17, 100, 9000}) {
    Rng rng(static_cast<uint64_t>(columns));
    const TestMatrix x(rng, 3, columns, 40.0f);
    for (const auto& kernel : soft_cap_kernels().all()) {
      TestMatrix out = x;
      const SoftCapArgs args{out.view(), 30.0f};
      if (!kernel.supports(device.device().traits(), args)) continue;
      SCOPED_TRACE(kernel.name);
      kernel.run(context, args);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t i = 0; i < columns; ++i) {
          ASSERT_NEAR(out.at(r, i), 30.0 * std::tanh(x.at(r, i) / 30.0), 2e-5) << x.at(r, i);
        }
      }
      EXPECT_TRUE(out.gaps_untouched());
    }
  }
}

TEST(SoftCap, HardOnesAreClamps) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(7);
  const TestMatrix x(rng, 5, 37, 4.0f);
  for (const auto& kernel : soft_cap_kernels().all()) {
    for (const CapKind kind : {CapKind::kClamp, CapKind::kAtMost}) {
      TestMatrix out = x;
      const SoftCapArgs args{.x = out.view(), .cap = 1.5f, .kind = kind};
      if (!kernel.supports(device.device().traits(), args)) continue;
      SCOPED_TRACE(kernel.name);
      kernel.run(context, args);
      const float least = kind == CapKind::kClamp ? -1.5f : -HUGE_VALF;
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t i = 0; i < 37; ++i) {
          ASSERT_EQ(out.at(r, i), std::clamp(x.at(r, i), least, 1.5f));
        }
      }
      EXPECT_TRUE(out.gaps_untouched());
    }
  }
}

TEST(SoftCap, NanStaysNanAndInfinityBecomesTheCap) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  for (const auto& kernel : soft_cap_kernels().all()) {
    TestMatrix x(1, 4);
    x.at(0, 0) = std::nanf("");
    x.at(0, 1) = HUGE_VALF;
    x.at(0, 2) = -HUGE_VALF;
    x.at(0, 3) = 1e-20f;
    const SoftCapArgs args{x.view(), 5.0f};
    if (!kernel.supports(device.device().traits(), args)) continue;
    SCOPED_TRACE(kernel.name);
    kernel.run(context, args);
    EXPECT_TRUE(std::isnan(x.at(0, 0)));
    EXPECT_EQ(x.at(0, 1), 5.0f);
    EXPECT_EQ(x.at(0, 2), -5.0f);
    EXPECT_NEAR(x.at(0, 3), 1e-20f, 1e-6f);
  }
}

}  // namespace
}  // namespace headrace::soft_cap_test
