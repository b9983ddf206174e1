#include "ops/rows/rope_angles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::rope_angles_test {
namespace {

TEST(RopeAngles, EveryKernelRoundsTheExactValueOnce) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t count : {1, 33, 200}) {
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < count; ++t) positions.push_back(t * 653);  // up to 130,000
    const std::vector<double> inv_freq = {1.0, 0.31, 1e-3, 7e-7};
    for (const float scale : {1.0f, 1.19f}) {
      for (const auto& kernel : rope_angles_kernels().all()) {
        TestMatrix cos(count, 4), sin(count, 4);
        const RopeAnglesArgs args{positions, inv_freq, scale, cos.view(), sin.view()};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE(kernel.name);
        kernel.run(context, args);
        for (int64_t t = 0; t < count; ++t) {
          for (int64_t i = 0; i < 4; ++i) {
            const double angle =
                positions[static_cast<size_t>(t)] * inv_freq[static_cast<size_t>(i)];
            ASSERT_EQ(cos.at(t, i), static_cast<float>(std::cos(angle) * scale));
            ASSERT_EQ(sin.at(t, i), static_cast<float>(std::sin(angle) * scale));
          }
        }
        EXPECT_TRUE(cos.gaps_untouched() && sin.gaps_untouched());
      }
    }
  }
}

TEST(RopeAngles, NothingToDo) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<int32_t> positions = {1, 2};
  TestMatrix none(2, 0);
  rope_angles(context, {positions, {}, 1.0f, none.view(), none.view()});
  EXPECT_TRUE(none.gaps_untouched());
}

}  // namespace
}  // namespace headrace::rope_angles_test
