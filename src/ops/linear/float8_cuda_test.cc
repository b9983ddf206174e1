// FP8 weights on CUDA against sums in double of what their numbers and scales stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/float8.h"
#include "ops/linear/fused.h"
#include "tensor/float8.h"

namespace headrace::float8_cuda_test {
namespace {

// What rows stand for once they are e4m3 numbers with a scale a row. Weights are divided by it,
// rows of x multiplied by its inverse: another rounding where a value is half-way between two
// numbers.
enum class By : uint8_t { kScale, kInverse };
std::vector<float> through_float8(const std::vector<float>& values, int64_t k, By by) {
  std::vector<float> result = values;
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(k)) {
    const std::span row = std::span(result).subspan(first, static_cast<size_t>(k));
    float largest = 0.0f;
    for (const float value : row) largest = std::max(largest, std::abs(value));
    const float scale = float8_row_scale(largest);
    const float inverse = 1.0f / scale;
    for (float& value : row) {
      const float scaled = by == By::kScale ? value / scale : value * inverse;
      value = scale * e4m3_to_float(float_to_e4m3(scaled));
    }
  }
  return result;
}

// Random rows of unlike sizes, two matrices stacked, the first in reverse order.
struct Float8Stack {
  Float8Stack(TestDevice& cuda, Rng& rng, int64_t n, int64_t k, LinearCompute compute) {
    std::vector<float> source = random_floats(rng, n * k);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k; ++i)
        source[static_cast<size_t>(r * k + i)] *= 0.01f * static_cast<float>(1 + r % 7);
    }
    const int64_t first = n / 2;
    std::vector<int32_t> order;
    for (int64_t r = first; r-- > 0;) order.push_back(static_cast<int32_t>(r));
    LinearSource sources[] = {
        {TensorView(reinterpret_cast<std::byte*>(source.data()), DType::kF32, {first, k}), order},
        {TensorView(reinterpret_cast<std::byte*>(source.data() + first * k), DType::kF32,
                    {n - first, k}),
         {}}};
    for (LinearSource& each : sources) each.quantise_to = DType::kF8;
    weight = LinearWeight::pack(cuda.device(), sources, compute).value();
    const std::vector<float> rounded = through_float8(source, k, By::kScale);
    for (int64_t r = 0; r < n; ++r) {
      const int64_t from = r < first ? first - 1 - r : r;
      rows.insert(rows.end(), rounded.begin() + from * k, rounded.begin() + (from + 1) * k);
    }
  }

  LinearWeight weight;
  std::vector<float> rows;  // [N, K]
};

struct Float8Case {
  DType dtype, y_dtype;
  int64_t m, n, k;
  bool bias = false, accumulates = false;
  bool large = false;  // a row of x has numbers beyond F16
};

bool rounds_x(std::string_view kernel) {
  return kernel.find("stream") != std::string_view::npos ||
         kernel.find("library") != std::string_view::npos;
}

LinearCompute compute_of(DType dtype) {
  return dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
}

void run_case(TestDevice& cuda, const Float8Case& c) {
  SCOPED_TRACE("M" + std::to_string(c.m) + " N" + std::to_string(c.n) + " K" + std::to_string(c.k) +
               " " + std::string(dtype_name(c.dtype)) + " to " +
               std::string(dtype_name(c.y_dtype)));
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  const Float8Stack stack(cuda, rng, c.n, c.k, compute_of(c.dtype));
  ASSERT_TRUE(stack.weight.is_matrix_of(DType::kF8));
  std::vector<float> x = rounded_floats(rng, c.dtype, c.m * c.k);
  for (int64_t j = 0; c.large && j < c.k; j += 3) {
    x[static_cast<size_t>(c.m / 2 * c.k + j)] *= 0x1p20f;
  }
  const std::vector<float> x_rounded = through_float8(x, c.k, By::kInverse);
  const std::vector<float> y = rounded_floats(rng, c.y_dtype, c.m * c.n);
  const std::vector<float> bias = random_floats(rng, c.n);
  const CudaArray<float> bias_on(cuda, bias);
  CudaMatrix x_on(cuda, c.dtype, c.m, c.k, 8, &x);
  int kernels_run = 0;
  for (const auto& kernel : linear_kernels().all()) {
    CudaMatrix y_on(cuda, c.y_dtype, c.m, c.n, 8, c.accumulates ? &y : nullptr);
    const LinearArgs args{
        .x = x_on.view(),
        .weight = &stack.weight,
        .bias = c.bias ? bias_on.data() : nullptr,
        .y = y_on.view(),
        .output = c.accumulates ? LinearOutput::kAccumulate : LinearOutput::kStore};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    ++kernels_run;
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y_on.read();
    const std::vector<float>& multiplied = rounds_x(kernel.name) ? x_rounded : x;
    for (int64_t i = 0; i < c.m * c.n; ++i) {
      const int64_t row = i / c.n, column = i % c.n;
      double sum = 0, size = 0;
      for (int64_t j = 0; j < c.k; ++j) {
        const double product = static_cast<double>(multiplied[static_cast<size_t>(row * c.k + j)]) *
                               stack.rows[static_cast<size_t>(column * c.k + j)];
        sum += product;
        size += std::abs(product);
      }
      // A bias and what was there may cancel a product that was rounded before.
      const double rounded = std::abs(sum) + 1;
      if (c.bias) sum += bias[static_cast<size_t>(column)];
      if (c.accumulates) sum += y[static_cast<size_t>(i)];
      // Sums of FP8 products keep some 14 bits on the way.
      const double unit = rounds_x(kernel.name) || c.large ? 1e-3 : 1e-5;
      const double bound = unit * size + 2 * unit_of(c.y_dtype) * (std::abs(sum) + rounded);
      ASSERT_NEAR(result[static_cast<size_t>(i)], sum, bound) << "element " << i;
    }
  }
  EXPECT_GE(kernels_run, 2);
}

TEST(Float8Cuda, EveryKernelAgreesWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const DType y_dtype : {dtype, DType::kF32}) {
      for (const int64_t m : {1, 4, 5, 8, 17, 64, 130}) {
        for (const auto& [n, k] :
             {std::pair<int64_t, int64_t>{48, 64}, {272, 2176}, {144, 4096}, {32, 144}}) {
          run_case(cuda, {dtype, y_dtype, m, n, k, true, m % 2 == 0});
        }
      }
    }
  }
}

// Windows of x (gemv), shared columns (stream), several tiles a block, rows that no register holds.
TEST(Float8Cuda, LargeMatrices) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t m : {1, 5, 33}) {
    run_case(cuda, {DType::kBF16, DType::kBF16, m, 144, 14336, false, true});
    run_case(cuda, {DType::kF16, DType::kF32, m, 80, 18432, true});
  }
  run_case(cuda, {DType::kBF16, DType::kBF16, 8, 132 * 8 * 17 + 16, 2048});
}

// gemv multiplies in F16, which has no such number: whole rows and windows of them.
TEST(Float8Cuda, NumbersBeyondF16AreMultiplied) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t k : {2048, 5120, 14336}) {  // of 5,120 the last window is short
    for (const int64_t m : {1, 4, 8}) {
      run_case(
          cuda,
          {.dtype = DType::kBF16, .y_dtype = DType::kF32, .m = m, .n = 144, .k = k, .large = true});
    }
  }
}

const Kernel<LinearArgs>& kernel_named(std::string_view name) {
  const auto kernels = linear_kernels().all();
  const auto found = std::ranges::find(kernels, name, &Kernel<LinearArgs>::name);
  CHECK(found != kernels.end());
  return *found;
}

// gate and up of one launch beside the product alone, of x as it is or as FP8.
TEST(Float8Cuda, AGateIsTheProductsOwn) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kFeatures = 1056, kHidden = 2048;
  Rng rng(3);
  const Float8Stack stack(cuda, rng, 2 * kFeatures, kHidden, LinearCompute::kFast);
  for (const int64_t m : {1, 2, 7, 8, 20, 64}) {
    const std::vector<float> x = rounded_floats(rng, DType::kBF16, m * kHidden);
    CudaMatrix x_on(cuda, DType::kBF16, m, kHidden, 0, &x);
    const auto sums_of = [&](std::string_view kernel) {
      CudaMatrix sums(cuda, DType::kF32, m, 2 * kFeatures, 0, nullptr);
      OpContext context = cuda.context();
      kernel_named(kernel).run(
          context, {.x = x_on.view(), .weight = &stack.weight, .bias = nullptr, .y = sums.view()});
      return sums.read();
    };
    const std::vector<float> as_it_is = sums_of("linear/cuda/any");
    const std::vector<float> as_float8 = sums_of("linear/cuda/stream_any_size");
    int kernels_run = 0;
    for (const auto& kernel : gated_linear_kernels().all()) {
      CudaMatrix y(cuda, DType::kBF16, m, kFeatures, 0, nullptr);
      CudaMatrix between(cuda, DType::kBF16, m, 2 * kFeatures, 0, nullptr);
      const GatedLinearArgs args{.x = x_on.view(),
                                 .weight = &stack.weight,
                                 .bias = nullptr,
                                 .activation = Activation::kSilu,
                                 .gate_up = between.view(),
                                 .y = y.view()};
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(std::string(kernel.name) + " M" + std::to_string(m));
      ++kernels_run;
      OpContext context = cuda.context();
      kernel.run(context, args);
      const std::vector<float> result = y.read();
      const bool few = m <= 4 || kernel.name.find("gemv") != std::string_view::npos;
      const std::vector<float>& sums = few ? as_it_is : as_float8;
      for (int64_t i = 0; i < m * kFeatures; ++i) {
        const int64_t at = i / kFeatures * 2 * kFeatures + i % kFeatures;
        const float gate = sums[static_cast<size_t>(at)];
        const float up = sums[static_cast<size_t>(at + kFeatures)];
        const float expected = gate / (1.0f + std::exp(-gate)) * up;
        ASSERT_NEAR(result[static_cast<size_t>(i)], expected, 0.02 * std::abs(expected) + 2e-3);
      }
    }
    EXPECT_GE(kernels_run, m <= 8 ? 2 : 1);
  }
}

// A norm before the product, and a sum before the norm: as by two ops, one rounding apart.
TEST(Float8Cuda, ANormBeforeIsANormAlone) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 1056;
  Rng rng(9);
  for (const int64_t k : {1024, 2048, 9216}) {
    const Float8Stack stack(cuda, rng, kN, k, LinearCompute::kFast);
    const std::vector<float> ones = random_floats(rng, k);
    const CudaArray<float> norm_weight(cuda, ones);
    for (const int64_t m : {1, 12, 64, 80}) {
      for (const bool residual : {false, true}) {
        SCOPED_TRACE("K" + std::to_string(k) + " M" + std::to_string(m));
        const std::vector<float> x = rounded_floats(rng, DType::kBF16, m * k);
        const std::vector<float> more = rounded_floats(rng, DType::kBF16, m * k);
        std::vector<std::vector<float>> results, updated;
        const auto kernels = norm_linear_kernels().all();
        for (const std::string_view name : {"norm_linear/two_ops", "norm_linear/cuda/float8"}) {
          CudaMatrix x_on(cuda, DType::kBF16, m, k, 0, &x), out(cuda, DType::kBF16, m, k, 0, &x);
          CudaMatrix more_on(cuda, DType::kBF16, m, k, 0, &more);
          CudaMatrix y(cuda, DType::kF32, m, kN, 0, nullptr);
          const NormLinearArgs args{
              .norm = {.x = x_on.view(),
                       .residual = residual ? ConstTensorView(more_on.view()) : ConstTensorView{},
                       .weight = norm_weight.data(),
                       .eps = 1e-5f,
                       .out = out.view()},
              .linear = {.x = out.view(), .weight = &stack.weight, .bias = nullptr, .y = y.view()}};
          const auto kernel = std::ranges::find(kernels, name, &Kernel<NormLinearArgs>::name);
          ASSERT_NE(kernel, kernels.end());
          ASSERT_TRUE(kernel->supports(cuda.device().traits(), args));
          OpContext context = cuda.context();
          kernel->run(context, args);
          results.push_back(y.read());
          updated.push_back(x_on.read());
        }
        EXPECT_EQ(updated[0], updated[1]);
        // To eight rows two ops multiply x as it is; a norm's last bit may be another.
        const double bound = m <= 8 && k >= 2048 ? 0.6 : 0.1;
        for (size_t i = 0; i < results[0].size(); ++i) {
          ASSERT_NEAR(results[0][i], results[1][i], bound * (1 + std::abs(results[0][i])));
        }
      }
    }
  }
}

TEST(Float8Cuda, NormedRowsBeyondF16AreMultiplied) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 144, kK = 4096;
  Rng rng(11);
  const Float8Stack stack(cuda, rng, kN, kK, LinearCompute::kFast);
  std::vector<float> weights = random_floats(rng, kK);
  for (float& weight : weights) weight *= 0x1p20f;
  const CudaArray<float> norm_weight(cuda, weights);
  for (const int64_t m : {1, 3, 8}) {
    const std::vector<float> x = rounded_floats(rng, DType::kBF16, m * kK);
    std::vector<std::vector<float>> results;
    for (const std::string_view name : {"norm_linear/two_ops", "norm_linear/cuda/gemv_any_size"}) {
      CudaMatrix x_on(cuda, DType::kBF16, m, kK, 0, &x), out(cuda, DType::kBF16, m, kK, 0, &x);
      CudaMatrix y(cuda, DType::kF32, m, kN, 0, nullptr);
      const NormLinearArgs args{
          .norm = {.x = x_on.view(),
                   .residual = {},
                   .weight = norm_weight.data(),
                   .eps = 1e-5f,
                   .out = out.view()},
          .linear = {.x = out.view(), .weight = &stack.weight, .bias = nullptr, .y = y.view()}};
      const auto kernels = norm_linear_kernels().all();
      const auto kernel = std::ranges::find(kernels, name, &Kernel<NormLinearArgs>::name);
      ASSERT_NE(kernel, kernels.end());
      ASSERT_TRUE(kernel->supports(cuda.device().traits(), args));
      OpContext context = cuda.context();
      kernel->run(context, args);
      results.push_back(y.read());
    }
    float largest = 0;
    for (const float value : results[0]) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 65504.0f);
    for (size_t i = 0; i < results[0].size(); ++i) {
      ASSERT_NEAR(results[0][i], results[1][i], 0.03f * largest) << "M" << m << " element " << i;
    }
  }
}

// With batch invariance, whatever stands beside a row.
TEST(Float8Cuda, ARowHasTheSameBitsWhateverStandsBesideIt) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 1040, kK = 2048, kRows = 200;
  const auto kernels = linear_kernels().all();
  const auto kernel = std::ranges::find(kernels, "linear/cuda/stream", &Kernel<LinearArgs>::name);
  ASSERT_NE(kernel, kernels.end());
  Rng rng(5);
  const Float8Stack stack(cuda, rng, kN, kK, LinearCompute::kFast);
  const std::vector<float> x = rounded_floats(rng, DType::kBF16, kRows * kK);
  CudaMatrix x_on(cuda, DType::kBF16, kRows, kK, 0, &x);
  std::vector<float> expected;
  for (const int64_t m : {kRows, int64_t{1}, int64_t{9}, int64_t{64}, int64_t{129}}) {
    CudaMatrix y(cuda, DType::kBF16, m, kN, 0, nullptr);
    const LinearArgs args{
        .x = x_on.view().row_range(0, m), .weight = &stack.weight, .bias = nullptr, .y = y.view()};
    ASSERT_TRUE(takes(cuda, *kernel, args));
    OpContext context = cuda.context();
    kernel->run(context, args);
    const std::vector<float> bits = y.read();
    if (expected.empty()) expected = bits;
    ASSERT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin())) << "M " << m;
  }
}

// A row that is not finite is NaN; its neighbours are what they are.
TEST(Float8Cuda, ARowThatIsNotFiniteIsAlone) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 64, kK = 2048;
  Rng rng(7);
  const Float8Stack stack(cuda, rng, kN, kK, LinearCompute::kFast);
  std::vector<float> x = rounded_floats(rng, DType::kBF16, 12 * kK);
  x[static_cast<size_t>(3 * kK + 5)] = std::nanf("");
  x[static_cast<size_t>(7 * kK)] = INFINITY;
  CudaMatrix x_on(cuda, DType::kBF16, 12, kK, 0, &x);
  for (const auto& kernel : linear_kernels().all()) {
    CudaMatrix y(cuda, DType::kBF16, 12, kN, 0, nullptr);
    const LinearArgs args{
        .x = x_on.view(), .weight = &stack.weight, .bias = nullptr, .y = y.view()};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y.read();
    for (int64_t i = 0; i < 12 * kN; ++i) {
      const bool odd_row = i / kN == 3 || i / kN == 7;
      EXPECT_EQ(std::isfinite(result[static_cast<size_t>(i)]), !odd_row) << "element " << i;
    }
  }
}

// Whose scales would have infinite inverses: rows of x are zeros to kernels that round them, and
// rows of W to all.
TEST(Float8Cuda, RowsOfTinyNumbersAreFinite) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kM = 12, kN = 64, kK = 2048;
  Rng rng(13);
  std::vector<float> source = random_floats(rng, kN * kK);
  for (int64_t i = 0; i < kK; ++i) source[static_cast<size_t>(2 * kK + i)] *= 0x1p-130f;
  LinearSource rows{host_view(source, kN, kK), {}};
  rows.quantise_to = DType::kF8;
  const auto weight = LinearWeight::pack(cuda.device(), {&rows, 1}, LinearCompute::kFast);
  ASSERT_TRUE(weight.ok() && weight->is_matrix_of(DType::kF8));
  std::vector<float> x = rounded_floats(rng, DType::kBF16, kM * kK);
  for (const int64_t row : {3, 7}) {
    for (int64_t i = 0; i < kK; ++i) x[static_cast<size_t>(row * kK + i)] *= 0x1p-127f;
  }
  CudaMatrix x_on(cuda, DType::kBF16, kM, kK, 0, &x);
  for (const auto& kernel : linear_kernels().all()) {
    CudaMatrix y(cuda, DType::kF32, kM, kN, 0, nullptr);
    const LinearArgs args{.x = x_on.view(), .weight = &*weight, .bias = nullptr, .y = y.view()};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y.read();
    for (int64_t i = 0; i < kM * kN; ++i) {
      const float value = result[static_cast<size_t>(i)];
      const bool tiny = i / kN == 3 || i / kN == 7;
      ASSERT_TRUE(std::isfinite(value)) << "element " << i;
      if (i % kN == 2) {
        ASSERT_EQ(value, 0.0f) << "element " << i;
      } else if (tiny) {
        ASSERT_LT(std::abs(value), 1e-30f) << "element " << i;
      } else {
        ASSERT_NE(value, 0.0f) << "element " << i;
      }
    }
  }
}

// Rows or columns that are no whole 16s stay what they are, in x's type.
TEST(Float8Cuda, OddShapesStayMatrices) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{17, 64}, {16, 72}}) {
    std::vector<float> values(static_cast<size_t>(n * k), 0.5f);
    LinearSource source{host_view(values, n, k), {}};
    source.quantise_to = DType::kF8;
    const auto weight = LinearWeight::pack(cuda.device(), {&source, 1}, LinearCompute::kFast);
    ASSERT_TRUE(weight.ok());
    EXPECT_TRUE(weight->is_matrix_of(DType::kBF16));
    EXPECT_EQ(weight->row_scales(), nullptr);
  }
}

}  // namespace
}  // namespace headrace::float8_cuda_test
