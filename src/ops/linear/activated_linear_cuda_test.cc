// activated_linear on CUDA against gated_activation and linear: what gates let through is rounded
// in between, so that both have the same bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/activated_linear.h"
#include "ops/packing/random_matrix.h"

namespace headrace {
namespace {

struct Case {
  DType type;  // of W
  DType dtype;
  int64_t m, n, k;
  Activation activation = Activation::kSilu;
  bool accumulates = false;
  std::string_view kernel;  // the choice

  std::string name() const {
    return std::string(dtype_name(type)) + " " + std::string(dtype_name(dtype)) + " M" +
           std::to_string(m) + " N" + std::to_string(n) + " K" + std::to_string(k);
  }
};

constexpr std::string_view kTwoOps = "activated_linear/two_ops";
constexpr std::string_view kFloat8 = "activated_linear/cuda/float8";
constexpr std::string_view kTiles = "activated_linear/cuda/blocks_tiles";

LinearWeight weight_of(TestDevice& cuda, const Case& c, Rng& rng) {
  const bool float8 = c.type == DType::kF8;
  const RandomMatrix values(rng, float8 ? DType::kBF16 : c.type, c.n, c.k);
  LinearSource source{values.view(), {}};
  if (float8) source.quantise_to = c.type;
  const LinearCompute compute =
      c.dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
  return LinearWeight::pack(cuda.device(), {&source, 1}, compute).value();
}

void run_case(TestDevice& cuda, const Case& c) {
  SCOPED_TRACE(c.name());
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  const LinearWeight weight = weight_of(cuda, c, rng);
  const std::vector<float> gate_up = rounded_floats(rng, c.dtype, c.m * 2 * c.k, 3.0f);
  const std::vector<float> before = rounded_floats(rng, c.dtype, c.m * c.n);
  const CudaMatrix gate_up_on(cuda, c.dtype, c.m, 2 * c.k, 8, &gate_up);
  std::vector<std::vector<float>> results;
  for (const bool two_ops : {true, false}) {
    OpHooks hooks;
    if (two_ops) hooks.preferred = {std::string(kTwoOps)};
    CudaMatrix activated(cuda, c.dtype, c.m, c.k, 0, nullptr);
    CudaMatrix y(cuda, c.dtype, c.m, c.n, 8, &before);
    const ActivatedLinearArgs args{
        .gates = {.gate_up = gate_up_on.view(),
                  .activation = c.activation,
                  .out = activated.view()},
        .linear = {.x = activated.view(),
                   .weight = &weight,
                   .bias = nullptr,
                   .y = y.view(),
                   .output = c.accumulates ? LinearOutput::kAccumulate : LinearOutput::kStore}};
    OpContext context = cuda.context();
    context.hooks = &hooks;
    ASSERT_EQ(choose_kernel(context, activated_linear_kernels(), args).name,
              two_ops ? kTwoOps : c.kernel);
    ASSERT_EQ(activation_joins(context, args), !two_ops && c.kernel != kTwoOps);
    activated_linear(context, args);
    results.push_back(y.read());
  }
  double size = 0;
  for (const float value : results[0]) size += std::abs(double{value});
  EXPECT_GT(size, 0);
  EXPECT_EQ(results[0], results[1]);
}

// Rows that threads hold whole and longer ones.
TEST(ActivatedLinearCuda, Float8RowsHaveTheBitsOfTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t k : {576, 4096, 14336, 20480}) {
    for (const int64_t m : {256, 301}) {
      run_case(
          cuda,
          {.type = DType::kF8, .dtype = DType::kBF16, .m = m, .n = 96, .k = k, .kernel = kFloat8});
    }
  }
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu, Activation::kReluSquared,
        Activation::kClampedSwish}) {
    run_case(cuda, {DType::kF8, DType::kF16, 260, 64, 1024, activation, true, kFloat8});
  }
  run_case(
      cuda,
      {.type = DType::kF8, .dtype = DType::kBF16, .m = 255, .n = 96, .k = 4096, .kernel = kTwoOps});
}

// Rows that a block has numbers of once and more often, K that is no whole steps, slabs.
TEST(ActivatedLinearCuda, TilesHaveTheBitsOfTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t k : {256, 1536, 4096, 14336, 20480}) {
    for (const int64_t m : {65, 130, 301, 2048}) {
      if (m * k > 301 * 14336) continue;
      run_case(
          cuda,
          {.type = DType::kQ4_K, .dtype = DType::kBF16, .m = m, .n = 96, .k = k, .kernel = kTiles});
    }
  }
  run_case(cuda, {DType::kQ8_0, DType::kF16, 77, 160, 864, Activation::kSilu, false, kTiles});
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu, Activation::kReluSquared,
        Activation::kClampedSwish}) {
    run_case(cuda, {DType::kQ6_K, DType::kF16, 260, 64, 1024, activation, true, kTiles});
  }
  for (const int64_t m : {64, 2049}) {
    run_case(cuda, {.type = DType::kQ4_K,
                    .dtype = DType::kBF16,
                    .m = m,
                    .n = 96,
                    .k = 1024,
                    .kernel = kTwoOps});
  }
}

}  // namespace
}  // namespace headrace
