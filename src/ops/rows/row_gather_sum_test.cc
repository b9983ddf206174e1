#include "ops/rows/row_gather_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"

namespace headrace::row_gather_sum_test {
namespace {

TEST(RowGatherSum, AddsUpTheRowsOfItsPlaces) {
  TestDevice cpu = TestDevice::cpu(1);
  OpContext context = cpu.context();
  Rng rng(1);
  TestMatrix x(rng, 4, 3), out(2, 3);
  const std::vector<int32_t> places = {3, 0, 1, 1};
  const std::vector<float> scales = {2, -1, 100, 0.5f};
  row_gather_sum(context, {.x = x.view(), .places = places, .scales = scales, .out = out.view()});
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(out.at(0, c), 0.5f * x.at(3, c) + 2 * x.at(0, c));
    EXPECT_FLOAT_EQ(out.at(1, c), -2 * x.at(1, c));
  }
  EXPECT_TRUE(out.gaps_untouched());
}

TEST(RowGatherSum, WithoutScalesAllAreOne) {
  TestDevice cpu = TestDevice::cpu(1);
  OpContext context = cpu.context();
  Rng rng(1);
  TestMatrix x(rng, 4, 3), out(2, 3);
  const std::vector<int32_t> places = {3, 0, 1, -1};
  row_gather_sum(context, {.x = x.view(), .places = places, .scales = {}, .out = out.view()});
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(out.at(0, c), x.at(3, c) + x.at(0, c));
    EXPECT_EQ(out.at(1, c), x.at(1, c));
  }
}

// What another has computed is left out, whatever lies there.
TEST(RowGatherSum, LeavesOutPlacesThatAreNone) {
  TestDevice cpu = TestDevice::cpu(1);
  OpContext context = cpu.context();
  Rng rng(1);
  TestMatrix x(rng, 2, 3), out(2, 3);
  for (int64_t c = 0; c < 3; ++c) x.at(1, c) = std::nanf("");
  const std::vector<int32_t> places = {-1, 0, -1, -1};
  const std::vector<float> scales = {2, -1};
  row_gather_sum(context, {.x = x.view(), .places = places, .scales = scales, .out = out.view()});
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(out.at(0, c), 2 * x.at(0, c));
    EXPECT_EQ(out.at(1, c), 0.0f);
  }
}

TEST(RowGatherSumCuda, EveryKernelIsTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {1, 7, 64, 1000, 2048, 2049}) {
      for (const int64_t each : {1, 3, 9}) {
        constexpr int64_t kRows = 50;
        Rng rng(static_cast<uint64_t>(columns));
        std::vector<float> values = rounded_floats(rng, dtype, kRows * each * columns);
        const std::vector<float> scales = random_floats(rng, kRows * each);
        std::vector<int32_t> places;
        for (int64_t i = 0; i < kRows * each; ++i) {
          places.push_back(static_cast<int32_t>(rng.below(kRows * static_cast<uint64_t>(each))));
          if (each > 1 && rng.below(4) == 0) places.back() = -1;
        }
        const CudaArray<int32_t> places_on(cuda, places);
        const CudaArray<float> scales_on(cuda, scales);
        for (const bool scaled : {true, false}) {
          std::vector<float> expected(static_cast<size_t>(kRows * columns));
          OpContext reference = cpu.context(), context = cuda.context();
          RowGatherSumArgs args{.x = host_view(values, kRows * each, columns),
                                .places = places,
                                .scales = {},
                                .out = host_view(expected, kRows, columns)};
          if (scaled) args.scales = scales;
          row_gather_sum(reference, args);
          for (const auto& kernel : row_gather_sum_kernels().all()) {
            const CudaMatrix x(cuda, dtype, kRows * each, columns, 8, &values);
            const CudaMatrix out(cuda, dtype, kRows, columns, 8, nullptr);
            args.x = x.view();
            args.places = places_on.span();
            if (scaled) args.scales = scales_on.span();
            args.out = out.view();
            if (!kernel.supports(cuda.device().traits(), args)) continue;
            SCOPED_TRACE(std::string(kernel.name) + " " + std::to_string(columns));
            kernel.run(context, args);
            expect_near(out.read(), expected, unit_of(dtype), 4e-6);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::row_gather_sum_test
