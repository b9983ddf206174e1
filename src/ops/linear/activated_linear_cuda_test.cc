// activated_linear on CUDA against gated_activation and linear: what gates let through is rounded
// in between, so that both have the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/activated_linear.h"
#include "ops/packing/random_matrix.h"

namespace headrace::activated_linear_cuda_test {
namespace {

struct Case {
  DType type;  // of W
  DType dtype;
  int64_t m, n, k;
  Activation activation = Activation::kSilu;
  bool accumulates = false;
  std::string_view kernel;  // the choice
  std::optional<DType> y_dtype = {};
  std::optional<DType> second_type = {};  // of the second half of W's rows
  bool bias = false;
  bool in_place = false;  // what gates let through lies where the gates were
  std::vector<std::pair<int64_t, float>> factors = {};  // rows of gate and up, times these

  std::string name() const {
    return std::string(dtype_name(type)) + " " + std::string(dtype_name(dtype)) + " M" +
           std::to_string(m) + " N" + std::to_string(n) + " K" + std::to_string(k);
  }
};

constexpr std::string_view kTwoOps = "activated_linear/two_ops";
constexpr std::string_view kFloat8 = "activated_linear/cuda/float8";
constexpr std::string_view kTiles = "activated_linear/cuda/blocks_tiles";
constexpr std::string_view kWide = "activated_linear/cuda/blocks_wide";

LinearWeight weight_of(TestDevice& cuda, const Case& c, Rng& rng) {
  const bool float8 = c.type == DType::kF8;
  const int64_t first = c.second_type ? c.n / 2 : c.n;
  const RandomMatrix values(rng, float8 ? DType::kBF16 : c.type, first, c.k);
  std::optional<RandomMatrix> more;
  if (c.second_type) more.emplace(rng, *c.second_type, c.n - first, c.k);
  std::vector<LinearSource> sources = {{values.view(), {}}};
  if (float8) sources.front().quantise_to = c.type;
  if (c.second_type) sources.push_back({more->view(), {}});
  const LinearCompute compute =
      c.dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
  return LinearWeight::pack(cuda.device(), sources, compute).value();
}

// What kernels find in scratch memory that nobody has written: NaN, in every type.
void poison_scratch(TestDevice& cuda) {
  OpContext context = cuda.context();
  const Workspace::Mark mark(context.workspace);
  const std::vector<std::byte> nan(48 << 20, std::byte{0xff});
  const auto bytes = static_cast<int64_t>(nan.size());
  cuda.stream().copy_in(context.workspace.take(bytes), nan.data(), bytes);
  ASSERT_TRUE(cuda.stream().synchronize().ok());
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << "element " << i << ": " << a[i] << " " << b[i];
  }
}

void run_case(TestDevice& cuda, const Case& c) {
  SCOPED_TRACE(c.name());
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  const LinearWeight weight = weight_of(cuda, c, rng);
  const DType y_dtype = c.y_dtype.value_or(c.dtype);
  std::vector<float> gate_up = rounded_floats(rng, c.dtype, c.m * 2 * c.k, 3.0f);
  for (const auto& [row, factor] : c.factors) {
    const auto first = static_cast<size_t>(row * 2 * c.k);
    for (size_t i = 0; i < static_cast<size_t>(2 * c.k); ++i) gate_up[first + i] *= factor;
  }
  const std::vector<float> before = rounded_floats(rng, y_dtype, c.m * c.n);
  const CudaArray<float> bias_on(cuda, random_floats(rng, c.n));
  std::vector<std::vector<float>> results;
  for (const bool two_ops : {true, false}) {
    OpHooks hooks;
    if (two_ops) hooks.preferred = {std::string(kTwoOps)};
    const CudaMatrix gate_up_on(cuda, c.dtype, c.m, 2 * c.k, 8, &gate_up);
    const CudaMatrix apart(cuda, c.dtype, c.m, c.k, 0, nullptr);
    const TensorView gates = gate_up_on.view();
    const TensorView activated =
        c.in_place ? TensorView(gates.data, c.dtype, Shape{c.m, c.k}, gates.row_stride)
                   : apart.view();
    CudaMatrix y(cuda, y_dtype, c.m, c.n, 8, &before);
    const ActivatedLinearArgs args{
        .gates = {.gate_up = gates, .activation = c.activation, .out = activated},
        .linear = {.x = activated,
                   .weight = &weight,
                   .bias = c.bias ? bias_on.data() : nullptr,
                   .y = y.view(),
                   .output = c.accumulates ? LinearOutput::kAccumulate : LinearOutput::kStore}};
    OpContext context = cuda.context();
    context.hooks = &hooks;
    ASSERT_EQ(choose_kernel(context, activated_linear_kernels(), args).name,
              two_ops ? kTwoOps : c.kernel);
    ASSERT_EQ(activation_joins(context, args), !two_ops && c.kernel != kTwoOps);
    poison_scratch(cuda);
    activated_linear(context, args);
    results.push_back(y.read());
  }
  double size = 0;
  for (const float value : results[0]) size += std::isfinite(value) ? std::abs(double{value}) : 0;
  EXPECT_GT(size, 0);
  expect_same_bits(results[0], results[1]);
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
  // More rows than are taken at a time: the last of them full, and of one row.
  for (const int64_t m : {1537, 1600}) {
    run_case(cuda, {.type = DType::kQ4_K,
                    .dtype = DType::kBF16,
                    .m = m,
                    .n = 32,
                    .k = 20480,
                    .kernel = kTiles});
  }
  run_case(cuda, {.type = DType::kQ4_K,
                  .dtype = DType::kBF16,
                  .m = 2049,
                  .n = 96,
                  .k = 1024,
                  .kernel = kTwoOps});
}

// The same of fewer rows, whose means stand beside them; one with numbers beyond F16.
TEST(ActivatedLinearCuda, WideRowsHaveTheBitsOfTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t k : {256, 864, 4096, 14336}) {
    for (const int64_t m : {9, 16, 33, 64}) {
      run_case(cuda, {.type = DType::kQ8_0,
                      .dtype = DType::kBF16,
                      .m = m,
                      .n = 96,
                      .k = k,
                      .kernel = kWide,
                      .factors = {{m / 2, 0x1p12f}}});
    }
  }
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu, Activation::kReluSquared,
        Activation::kClampedSwish}) {
    run_case(cuda, {DType::kQ6_K, DType::kF16, 20, 64, 1024, activation, true, kWide});
  }
  run_case(cuda, {.type = DType::kQ4_K,
                  .dtype = DType::kF16,
                  .m = 40,
                  .n = 131,
                  .k = 2304,
                  .kernel = kWide,
                  .y_dtype = DType::kF32,
                  .second_type = DType::kQ6_K,
                  .bias = true});
  run_case(
      cuda,
      {.type = DType::kQ4_K, .dtype = DType::kBF16, .m = 4, .n = 96, .k = 1024, .kernel = kTwoOps});
}

// Sums of other types, with a bias, for an odd number of columns, by W of two types; rings of two
// places for tiles of many steps.
TEST(ActivatedLinearCuda, TilesHaveTheBitsOfTwoOpsWhateverIsAskedOfSums) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    for (const bool accumulates : {false, true}) {
      run_case(cuda, {.type = type,
                      .dtype = DType::kBF16,
                      .m = 300,
                      .n = 131,
                      .k = 14336,
                      .accumulates = accumulates,
                      .kernel = kTiles,
                      .y_dtype = DType::kF32,
                      .second_type = DType::kQ6_K,
                      .bias = true});
    }
    run_case(cuda, {.type = type,
                    .dtype = DType::kF16,
                    .m = 520,
                    .n = 9000,
                    .k = 2304,
                    .kernel = kTiles,
                    .bias = true,
                    .in_place = true});
  }
}

// A block lays out two rows: one of them is beyond F16, or both, or no number at all, and the
// others have their bits.
TEST(ActivatedLinearCuda, TilesOfRowsBeyondF16AndOfNoNumbers) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  for (const int64_t m : {70, 301}) {
    run_case(cuda, {.type = DType::kQ4_K,
                    .dtype = DType::kBF16,
                    .m = m,
                    .n = 96,
                    .k = 4096,
                    .kernel = kTiles,
                    .factors = {{2, 0x1p10f}, {5, 0x1p9f}, {6, 0x1p12f}, {7, 0x1p8f}}});
    run_case(cuda, {.type = DType::kQ4_K,
                    .dtype = DType::kBF16,
                    .m = m,
                    .n = 96,
                    .k = 4096,
                    .kernel = kTiles,
                    .factors = {{0, nan}, {3, kInfinity}, {9, nan}, {m - 1, 0x1p10f}}});
  }
}

}  // namespace
}  // namespace headrace::activated_linear_cuda_test
