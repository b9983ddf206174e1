// linear on CUDA against sums in double, over a sweep of shapes, types, strides and outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/gated_linear.h"
#include "ops/packing/random_matrix.h"
#include "ops/rows/activation.h"
#include "tensor/quantised_row.h"

namespace headrace::linear_cuda_test {
namespace {

struct Case {
  DType dtype, y_dtype;
  int64_t m, n, k, gap;
  bool bias, accumulates;
  int64_t y_gap = -1;  // < 0: as of x

  int64_t gap_of_y() const { return y_gap < 0 ? gap : y_gap; }
  std::string name() const {
    return std::string(dtype_name(dtype)) + " to " + std::string(dtype_name(y_dtype)) + " M" +
           std::to_string(m) + " N" + std::to_string(n) + " K" + std::to_string(k) + " gap" +
           std::to_string(gap) + "," + std::to_string(gap_of_y()) + (bias ? " bias" : "") +
           (accumulates ? " +=" : "");
  }
};

LinearCompute compute_of(DType dtype) {
  if (dtype == DType::kF32) return LinearCompute::kFloat32;
  return dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
}

void run_case(TestDevice& cuda, const Case& c) {
  SCOPED_TRACE(c.name());
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  std::vector<float> w = rounded_floats(rng, c.dtype, c.n * c.k);
  const std::vector<float> x = rounded_floats(rng, c.dtype, c.m * c.k);
  const std::vector<float> y = rounded_floats(rng, c.y_dtype, c.m * c.n);
  const std::vector<float> bias = random_floats(rng, c.n);
  // Two sources, so that a stack is tested too; the first in reverse order.
  const int64_t first = c.n / 2;
  std::vector<int32_t> order;
  for (int64_t r = first; r-- > 0;) order.push_back(static_cast<int32_t>(r));
  std::vector<LinearSource> sources;
  if (first > 0) {
    sources.push_back(
        {TensorView(reinterpret_cast<std::byte*>(w.data()), DType::kF32, {first, c.k}), order});
  }
  sources.push_back({TensorView(reinterpret_cast<std::byte*>(w.data() + first * c.k), DType::kF32,
                                {c.n - first, c.k}),
                     {}});
  auto weight = LinearWeight::pack(cuda.device(), sources, compute_of(c.dtype));
  ASSERT_TRUE(weight.ok()) << weight.status().message();

  std::vector<float> expected, scale;
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t column = 0; column < c.n; ++column) {
      const int64_t from = column < first ? first - 1 - column : column;
      double sum = 0, size = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        const double product = static_cast<double>(x[static_cast<size_t>(row * c.k + i)]) *
                               w[static_cast<size_t>(from * c.k + i)];
        sum += product;
        size += std::abs(product);
      }
      if (c.bias) sum += bias[static_cast<size_t>(column)];
      if (c.accumulates) sum += y[static_cast<size_t>(row * c.n + column)];
      expected.push_back(static_cast<float>(sum));
      scale.push_back(static_cast<float>(size));
    }
  }

  const CudaArray<float> bias_on(cuda, bias);
  CudaMatrix x_on(cuda, c.dtype, c.m, c.k, c.gap, &x);
  for (const auto& kernel : linear_kernels().all()) {
    CudaMatrix y_on(cuda, c.y_dtype, c.m, c.n, c.gap_of_y(), c.accumulates ? &y : nullptr);
    const LinearArgs args{
        .x = x_on.view(),
        .weight = &*weight,
        .bias = c.bias ? bias_on.data() : nullptr,
        .y = y_on.view(),
        .output = c.accumulates ? LinearOutput::kAccumulate : LinearOutput::kStore};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y_on.read();
    for (size_t i = 0; i < result.size(); ++i) {
      // Sums of f32 in another order, then up to two roundings to y's type (a bias may come after).
      const double bound = 1e-5 * scale[i] + 2 * unit_of(c.y_dtype) * (std::abs(expected[i]) + 2);
      ASSERT_NEAR(result[i], expected[i], bound) << "element " << i;
    }
  }
}

TEST(LinearCuda, EveryKernelAgreesWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const DType y_dtype : {dtype, DType::kF32}) {
      for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 100}) {
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{48, 64},
                                   {576, 576},
                                   {33, 96},
                                   {1, 8},
                                   {17, 33},
                                   {200, 1056}}) {
          run_case(cuda, {dtype, y_dtype, m, n, k, 0, false, false});
          run_case(cuda, {dtype, y_dtype, m, n, k, 8, true, false});
          run_case(cuda, {dtype, y_dtype, m, n, k, 3, true, true});
        }
      }
    }
  }
}

// Enough rows of W for two row tiles a block (few_rows) on every GPU.
TEST(LinearCuda, AWideWeight) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t m : {1, 5, 12}) {
    run_case(cuda, {DType::kBF16, DType::kBF16, m, 32 * 2 * 160 + 5, 128, 0, false, false});
    run_case(cuda, {DType::kBF16, DType::kF32, m, 32 * 2 * 160 + 16, 64, 8, true, true});
  }
}

// gemv's tiles: uneven shares, rows past the end, sums in one round and in several.
TEST(LinearCuda, AFewRowsOfTiles) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{4096, 1024},
                             {1051, 1088},
                             {7, 4096},
                             {132 * 8 * 17 + 3, 1024}}) {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 8}) {
      run_case(cuda, {DType::kBF16, DType::kBF16, m, n, k, 8, false, m % 2 == 0});
      run_case(cuda, {DType::kBF16, DType::kF32, m, n, k, 0, true, m % 2 == 1});
    }
    run_case(cuda, {DType::kF16, DType::kF16, 6, n, k, 8, true, true});
  }
  for (const int64_t m : {1, 4, 5, 7, 8}) {  // x in windows, from five rows on
    run_case(cuda, {DType::kBF16, DType::kBF16, m, 347, 14336, 8, true, true});
    run_case(cuda, {DType::kF16, DType::kF32, m, 80, 9280, 0, false, false});
  }
}

// Tiles of every height, columns shared by the blocks of a cluster, several tiles a block, edges.
TEST(LinearCuda, TilesOfStreamedWeights) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{4096, 1000},
                             {6144, 264},
                             {1026, 4096},
                             {132 * 256 * 2 + 34, 72},
                             {132 * 64 + 2, 8}}) {
    for (const int64_t m : {3, 64, 65}) {
      run_case(cuda, {DType::kBF16, DType::kBF16, m, n, k, 8, false, false});
    }
    run_case(cuda, {DType::kF16, DType::kF32, 70, n, k, 8, true, true});
  }
}

// Random weights, [n, k].
LinearWeight random_weight(TestDevice& cuda, DType dtype, Rng& rng, int64_t n, int64_t k,
                           std::vector<float>* values) {
  *values = rounded_floats(rng, dtype, n * k, 0.2f);
  const LinearSource source{host_view(*values, n, k), {}};
  return std::move(LinearWeight::pack(cuda.device(), {&source, 1}, compute_of(dtype)).value());
}

// Rows of logits: no even number of columns, each row on 256 bytes all the same. Every kernel but
// those of few columns takes them, and none writes behind the last column.
TEST(LinearCuda, AnOddNumberOfColumnsInAlignedRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const auto gap_of = [](int64_t n, int64_t bytes) {
    return (256 - n * bytes % 256) % 256 / bytes;
  };
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{49155, 64},
                             {4097, 1088},
                             {1027, 4096},
                             {132 * 64 + 3, 8},
                             {33, 64},
                             {1, 64}}) {
    for (const int64_t m : {1, 3, 8, 9, 32, 65}) {
      const bool more = m % 2 == 1;
      run_case(cuda, {DType::kBF16, DType::kF32, m, n, k, 0, false, false, gap_of(n, 4)});
      run_case(cuda, {DType::kF16, DType::kF32, m, n, k, 8, more, !more, gap_of(n, 4)});
      run_case(cuda, {DType::kBF16, DType::kBF16, m, n, k, 8, true, more, gap_of(n, 2)});
    }
  }
}

// --- packed block types ---

// A stack of two matrices of block types, the first in reverse order, and the values of its rows.
struct PackedStack {
  PackedStack(TestDevice& cuda, Rng& rng, DType first_type, DType second_type, int64_t n, int64_t k,
              LinearCompute compute)
      : first(rng, first_type, n / 2, k), second(rng, second_type, n - n / 2, k) {
    for (int64_t r = first.n; r-- > 0;) order.push_back(static_cast<int32_t>(r));
    const LinearSource sources[] = {{first.view(), order}, {second.view(), {}}};
    weight = LinearWeight::pack(cuda.device(), sources, compute).value();
    for (int64_t r = 0; r < n; ++r) {
      std::vector<float>& row = rows.emplace_back(static_cast<size_t>(k));
      r < first.n ? dequantise_row(first.view(), first.n - 1 - r, row.data())
                  : dequantise_row(second.view(), r - first.n, row.data());
    }
  }

  RandomMatrix first, second;
  std::vector<int32_t> order;
  LinearWeight weight;
  std::vector<std::vector<float>> rows;  // as f32
};

struct PackedCase {
  DType dtype, y_dtype;
  DType first_type, second_type;
  int64_t m, n, k;
  bool bias, accumulates;
  int64_t x_gap = 8, y_gap = 8;
  int32_t tiles = 0;  // those of `blocks_tiles` on an H200 (8 rows of x each), where it matters
};

void run_packed_case(TestDevice& cuda, const PackedCase& c) {
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  const PackedStack stack(cuda, rng, c.first_type, c.second_type, c.n, c.k, compute_of(c.dtype));
  ASSERT_FALSE(stack.weight.is_matrix());
  const int32_t sm_count = cuda.device().traits().sm_count;
  if (c.tiles > 0 && sm_count == 132) {
    EXPECT_EQ(blocks_tiles_rows(c.m, stack.weight, sm_count).tiles, c.tiles);
  }
  // Of large products some elements are looked at, of every row and every column.
  const int64_t step = c.m * c.n * c.k > 500'000'000 ? 7 : 1;
  ASSERT_TRUE(step == 1 || c.n % step != 0);
  const std::vector<float> x = rounded_floats(rng, c.dtype, c.m * c.k);
  const std::vector<float> y = rounded_floats(rng, c.y_dtype, c.m * c.n);
  const std::vector<float> bias = random_floats(rng, c.n);
  const CudaArray<float> bias_on(cuda, bias);
  CudaMatrix x_on(cuda, c.dtype, c.m, c.k, c.x_gap, &x);
  std::vector<std::pair<double, double>> sums;  // and the sum of the products' sizes
  for (int64_t i = 0; i < c.m * c.n; i += step) {
    const float* const x_row = &x[static_cast<size_t>(i / c.n * c.k)];
    const std::vector<float>& w_row = stack.rows[static_cast<size_t>(i % c.n)];
    double sum = c.bias ? bias[static_cast<size_t>(i % c.n)] : 0, size = 0;
    for (size_t j = 0; j < w_row.size(); ++j) {
      const double product = static_cast<double>(x_row[j]) * w_row[j];
      sum += product;
      size += std::abs(product);
    }
    if (c.accumulates) sum += y[static_cast<size_t>(i)];
    sums.emplace_back(sum, size);
  }
  int kernels_run = 0;
  for (const auto& kernel : linear_kernels().all()) {
    CudaMatrix y_on(cuda, c.y_dtype, c.m, c.n, c.y_gap, c.accumulates ? &y : nullptr);
    const LinearArgs args{
        .x = x_on.view(),
        .weight = &stack.weight,
        .bias = c.bias ? bias_on.data() : nullptr,
        .y = y_on.view(),
        .output = c.accumulates ? LinearOutput::kAccumulate : LinearOutput::kStore};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name) + " " + std::string(dtype_name(c.first_type)) + " " +
                 std::string(dtype_name(c.second_type)) + " M" + std::to_string(c.m) + " N" +
                 std::to_string(c.n) + " K" + std::to_string(c.k));
    ++kernels_run;
    // Weights are exact, or rounded to x's type where they are unpacked; `blocks_wide` and
    // `blocks_tiles` round them, scales and minima to F16.
    double weight_unit = 0;
    if (kernel.name == "linear/cuda/unpacked") weight_unit = unit_of(c.dtype) / 2;
    if (kernel.name.starts_with("linear/cuda/blocks_wide") ||
        kernel.name.starts_with("linear/cuda/blocks_tiles"))
      weight_unit = 1.5 * unit_of(DType::kF16);
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y_on.read();
    for (int64_t i = 0; i < c.m * c.n; i += step) {
      const auto [sum, size] = sums[static_cast<size_t>(i / step)];
      // A part's minimum and its scaled sum may cancel: errors are of their sizes.
      const double bound =
          (3e-5 + weight_unit) * size + 2 * unit_of(c.y_dtype) * (std::abs(sum) + 2);
      ASSERT_NEAR(result[static_cast<size_t>(i)], sum, bound) << "element " << i;
    }
  }
  EXPECT_GE(kernels_run, 2);
}

TEST(LinearCuda, PackedBlocksAgreeWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const int64_t k :
           {whole_blocks(type, 1), whole_blocks(type, 800), whole_blocks(type, 4096)}) {
        run_packed_case(cuda, {dtype, dtype, type, type, 1, 33, k, false, false});
        run_packed_case(cuda, {dtype, DType::kF32, type, type, 9, 96, k, true, true});
        run_packed_case(cuda, {dtype, dtype, type, DType::kQ8_0, 40, 50, k, true, false});
        run_packed_case(cuda, {dtype, DType::kF32, type, type, 130, 16, k, false, true});
      }
    }
  }
}

// Rows of x of which a lane cannot read four columns at a time.
TEST(LinearCuda, PackedBlocksTakeRowsThatLieAnyhow) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t gap : {1, 2, 4}) {
    for (const int64_t m : {1, 3, 8, 9, 40}) {
      run_packed_case(cuda, {DType::kBF16, DType::kF32, DType::kQ4_K, DType::kQ6_K, m, 80, 1024,
                             true, false, gap});
      run_packed_case(cuda, {DType::kF16, DType::kF16, DType::kQ8_0, DType::kQ8_0, m, 33, 96, false,
                             true, gap});
    }
  }
}

// More rows than are unpacked at a time.
TEST(LinearCuda, PackedBlocksOfManyRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  run_packed_case(
      cuda, {DType::kF16, DType::kF32, DType::kQ4_K, DType::kQ6_K, 2, 9000, 4096, true, false});
}

// Several groups of a thread block; stages that do not divide among warps; K whose stages are fewer
// than warps; groups whose sums meet in several rounds.
TEST(LinearCuda, StreamedBlocksAgreeWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    run_packed_case(cuda, {DType::kBF16, DType::kBF16, type, type, 1, 6000, 512, true, false});
    run_packed_case(cuda, {DType::kF16, DType::kF32, type, type, 8, 2200, 1024, false, true});
    run_packed_case(cuda,
                    {DType::kBF16, DType::kF32, type, DType::kQ8_0, 5, 150, 4608, true, false});
    run_packed_case(cuda, {DType::kBF16, DType::kBF16, type, type, 2, 70, 14336, false, true});
  }
  for (const DType type : {DType::kQ4_K, DType::kQ8_0}) {
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 1, 112000, 512, false, true});
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 8, 18000, 512, false, false});
  }
}

// Each number of tiles of x, clusters that share K, a last step of K that begins before the one
// before it has ended, groups that do not fill a thread block.
TEST(LinearCuda, SomeDozensOfRowsOfBlocksAgreeWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 12, 400, 4096, true, false});
    run_packed_case(cuda, {DType::kF16, DType::kF16, type, type, 17, 150, 14336, false, true});
    run_packed_case(cuda,
                    {DType::kBF16, DType::kBF16, type, DType::kQ4_K, 33, 2100, 1024, true, false});
    run_packed_case(cuda,
                    {DType::kBF16, DType::kF32, type, DType::kQ6_K, 64, 130, 2304, false, true});
    run_packed_case(cuda, {DType::kF16, DType::kF32, type, type, 100, 40, whole_blocks(type, 608),
                           true, false});
  }
}

// Tiles of 128 and of 256 rows of x, blocks that share K or rows of x and such that do not,
// clusters that go through several tiles (some with rings that end within a tile) and such of one
// block, more rows than are taken at a time, rows of y that lie anyhow.
TEST(LinearCuda, ManyRowsOfBlocksAgreeWithSumsInDouble) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    run_packed_case(cuda, {DType::kBF16, DType::kBF16, type, type, 130, 400, 2304, true, false});
    run_packed_case(cuda,
                    {DType::kF16, DType::kF32, type, DType::kQ4_K, 300, 33, 1024, true, true});
    run_packed_case(cuda, {DType::kBF16, DType::kBF16, type, type, 65, 130, whole_blocks(type, 608),
                           false, true, 8, 1});
  }
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    run_packed_case(cuda, {DType::kBF16, DType::kBF16, type, type, 70, 18000, 256, true, false});
    run_packed_case(cuda, {DType::kF16, DType::kF16, type, type, 300, 9001, 256, false, true});
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 2100, 33, 512, false, false});
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 260, 64, 14336, true, false});
    run_packed_case(cuda, {DType::kBF16, DType::kF32, type, type, 200, 301, 512, true, true, 8, 3});
    run_packed_case(
        cuda, {DType::kBF16, DType::kBF16, type, type, 520, 9000, 512, false, false, 8, 8, 32});
    run_packed_case(cuda,
                    {DType::kF16, DType::kF32, type, type, 400, 9001, 768, true, true, 8, 8, 32});
    run_packed_case(
        cuda, {DType::kBF16, DType::kBF16, type, type, 1700, 1152, 512, true, false, 8, 8, 16});
  }
}

// F16, in which weights of eight bits and fewer are multiplied, has no such number.
TEST(LinearCuda, NumbersBeyondF16AreMultiplied) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 64, kK = 4096, kLarge = 3;
  for (const DType type : {DType::kQ4_K, DType::kQ8_0, DType::kQ6_K}) {
    Rng rng(7);
    const PackedStack stack(cuda, rng, type, type, kN, kK, LinearCompute::kFast);
    for (const int64_t m : {1, 4, 8, 24, 130, 132}) {
      std::vector<float> x = rounded_floats(rng, DType::kBF16, m * kK);
      const int64_t row = m / 2;  // one of them, whose numbers are large but for some
      for (int64_t j = 0; j < kK; j += kLarge) {
        x[static_cast<size_t>(row * kK + j)] *= 0x1p20f;
      }
      const CudaMatrix x_on(cuda, DType::kBF16, m, kK, 8, &x);
      CudaMatrix y_on(cuda, DType::kF32, m, kN, 0, nullptr);
      OpContext context = cuda.context();
      linear(context,
             {.x = x_on.view(), .weight = &stack.weight, .bias = nullptr, .y = y_on.view()});
      const std::vector<float> y = y_on.read();
      for (int64_t i = 0; i < m * kN; ++i) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < kK; ++j) {
          const double product = static_cast<double>(x[static_cast<size_t>(i / kN * kK + j)]) *
                                 stack.rows[static_cast<size_t>(i % kN)][static_cast<size_t>(j)];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(y[static_cast<size_t>(i)], sum, 1e-3 * size + 1e-3)
            << dtype_name(type) << " M" << m << " element " << i;
      }
    }
  }
}

TEST(LinearCuda, ARowOfBlocksHasTheSameBitsWhateverStandsBesideIt) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 80, kK = 2048, kRows = 200;
  const auto kernels = linear_kernels().all();
  const auto kernel =
      std::ranges::find(kernels, "linear/cuda/blocks_any_rows", &Kernel<LinearArgs>::name);
  ASSERT_NE(kernel, kernels.end());
  Rng rng(5);
  for (const DType type : {DType::kQ4_K, DType::kQ8_0, DType::kQ6_K}) {
    const PackedStack stack(cuda, rng, type, type, kN, kK, LinearCompute::kFast);
    const std::vector<float> x = rounded_floats(rng, DType::kBF16, kRows * kK);
    CudaMatrix x_on(cuda, DType::kBF16, kRows, kK, 0, &x);
    std::vector<float> expected;
    // Up to eight rows another kernel is taken, but where batch invariance is asked for.
    for (const int64_t m : {kRows, int64_t{9}, int64_t{33}, int64_t{64}, int64_t{129}}) {
      CudaMatrix y(cuda, DType::kF32, m, kN, 0, nullptr);
      const LinearArgs args{.x = x_on.view().row_range(0, m),
                            .weight = &stack.weight,
                            .bias = nullptr,
                            .y = y.view()};
      ASSERT_TRUE(takes(cuda, *kernel, args));
      OpContext context = cuda.context();
      kernel->run(context, args);
      const std::vector<float> bits = y.read();
      if (expected.empty()) expected = bits;
      ASSERT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin())) << "M " << m;
    }
  }
}

// The fast kernels are those that a head gets: a vocabulary is as fast as the next even one.
TEST(LinearCuda, AHeadOfAnyVocabularyGetsTheKernelOfAnEvenOne) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kHidden = 1024, kStride = 4 * 4160;
  Rng rng(3);
  std::vector<float> values;
  const LinearWeight odd = random_weight(cuda, DType::kBF16, rng, 4099, kHidden, &values);
  const LinearWeight even = random_weight(cuda, DType::kBF16, rng, 4100, kHidden, &values);
  DeviceTraits invariant = cuda.device().traits();
  invariant.batch_invariant = true;
  for (const int64_t m : {1, 8, 9, 32, 64, 256}) {
    const auto args = [&](const LinearWeight& weight) {
      return LinearArgs{.x = {nullptr, DType::kBF16, Shape{m, kHidden}},
                        .weight = &weight,
                        .bias = nullptr,
                        .y = {nullptr, DType::kF32, Shape{m, weight.n()}, kStride}};
    };
    for (const DeviceTraits& traits : {cuda.device().traits(), invariant}) {
      const auto* kernel = linear_kernels().find(traits, args(odd));
      EXPECT_EQ(kernel, linear_kernels().find(traits, args(even))) << m;
      EXPECT_FALSE(kernel->is_fallback) << m;
    }
  }
}

// The first rows of y are the same bits whatever number of rows of x is multiplied.
void expect_rows_keep_their_bits(std::string_view kernel_name, int64_t k,
                                 std::initializer_list<int64_t> row_counts) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 4096;
  const int64_t rows = *row_counts.begin();  // the largest
  Rng rng(11);
  std::vector<float> w;
  const LinearWeight weight = random_weight(cuda, DType::kBF16, rng, kN, k, &w);
  const std::vector<float> x = rounded_floats(rng, DType::kBF16, rows * k);
  CudaMatrix x_on(cuda, DType::kBF16, rows, k, 0, &x);
  const auto kernels = linear_kernels().all();
  const auto kernel = std::ranges::find(kernels, kernel_name, &Kernel<LinearArgs>::name);
  ASSERT_NE(kernel, kernels.end());
  std::vector<float> expected;
  for (const int64_t m : row_counts) {
    CudaMatrix y(cuda, DType::kF32, m, kN, 0, nullptr);
    const LinearArgs args{
        .x = x_on.view().row_range(0, m), .weight = &weight, .bias = nullptr, .y = y.view()};
    if (!takes(cuda, *kernel, args)) GTEST_SKIP() << "not run: no " << kernel->name;
    OpContext context = cuda.context();
    kernel->run(context, args);
    const std::vector<float> bits = y.read();
    if (expected.empty()) expected = bits;
    ASSERT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin())) << "M " << m;
  }
}

// What batch invariance rests on.
TEST(LinearCuda, AStreamedRowHasTheSameBitsWhateverStandsBesideIt) {
  expect_rows_keep_their_bits("linear/cuda/stream", 1024, {128, 1, 7, 64, 65});
}

TEST(LinearCuda, AGemvRowHasTheSameBitsWhateverStandsBesideIt) {
  expect_rows_keep_their_bits("linear/cuda/gemv_any_size", 4096, {8, 1, 2, 4, 5, 8});
}

struct GatedCase {
  DType dtype;
  int64_t m, features, k, gap;
  Activation activation;
  bool bias;
  int64_t y_gap = -1;  // < 0: as of x
};

void run_gated_case(TestDevice& cuda, const GatedCase& c) {
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.features * 1009 + c.k));
  std::vector<float> w;
  const LinearWeight weight = random_weight(cuda, c.dtype, rng, 2 * c.features, c.k, &w);
  const std::vector<float> x = rounded_floats(rng, c.dtype, c.m * c.k);
  const std::vector<float> bias = random_floats(rng, 2 * c.features);
  const auto product = [&](int64_t row, int64_t of) {
    double sum = c.bias ? bias[static_cast<size_t>(of)] : 0;
    for (int64_t i = 0; i < c.k; ++i) {
      sum += static_cast<double>(x[static_cast<size_t>(row * c.k + i)]) *
             w[static_cast<size_t>(of * c.k + i)];
    }
    return sum;
  };
  const CudaArray<float> bias_on(cuda, bias);
  CudaMatrix x_on(cuda, c.dtype, c.m, c.k, c.gap, &x);
  for (const auto& kernel : gated_linear_kernels().all()) {
    CudaMatrix scratch(cuda, c.dtype, c.m, 2 * c.features, 0, nullptr);
    CudaMatrix y(cuda, c.dtype, c.m, c.features, c.y_gap < 0 ? c.gap : c.y_gap, nullptr);
    const GatedLinearArgs args{.x = x_on.view(),
                               .weight = &weight,
                               .bias = c.bias ? bias_on.data() : nullptr,
                               .activation = c.activation,
                               .gate_up = scratch.view(),
                               .y = y.view()};
    if (!takes(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name) + " M" + std::to_string(c.m) + " F" +
                 std::to_string(c.features) + " K" + std::to_string(c.k));
    OpContext context = cuda.context();
    kernel.run(context, args);
    const std::vector<float> result = y.read();
    for (size_t i = 0; i < result.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / c.features;
      const auto column = static_cast<int64_t>(i) % c.features;
      const double gate = product(row, column), up = product(row, c.features + column);
      const double expected = activated(c.activation, gate) * up;
      // Gate and up may have been rounded to the type in between, once before the bias is added
      // and once after it; no activation is steeper than 1.2.
      const auto rounded = [&](double value, int64_t of) {
        const double added = c.bias ? bias[static_cast<size_t>(of)] : 0;
        return (unit_of(c.dtype) + 1e-5) * (2 * std::abs(value) + std::abs(added) + 0.01);
      };
      const double bound =
          1.2 * rounded(gate, column) * std::abs(up) +
          std::abs(activated(c.activation, gate)) * rounded(up, c.features + column) +
          2 * unit_of(c.dtype) * (std::abs(expected) + 0.01);
      ASSERT_NEAR(result[i], expected, bound) << "element " << i;
    }
  }
}

TEST(LinearCuda, GatedLinearAgreesWithDoubles) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [features, k] : {std::pair<int64_t, int64_t>{32, 64},
                                    {200, 136},
                                    {1536, 576},
                                    {132 * 128 + 64, 64},
                                    {50, 33}}) {
    for (const int64_t m : {1, 9, 65}) {
      run_gated_case(cuda, {DType::kBF16, m, features, k, 0, Activation::kSilu, false});
    }
    run_gated_case(cuda, {DType::kF16, 12, features, k, 8, Activation::kGeluTanh, true});
    run_gated_case(cuda, {DType::kBF16, 3, features, k, 8, Activation::kGeluErf, true});
    run_gated_case(cuda, {DType::kF32, 2, features, k, 0, Activation::kSilu, true});
  }
}

// The last column of y alone in its pair.
TEST(LinearCuda, AnOddNumberOfFeaturesInAlignedRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t features : {33, 225, 1537}) {
    const int64_t y_gap = (8 - features % 8) % 8;
    for (const int64_t m : {1, 9, 65}) {
      run_gated_case(cuda, {DType::kBF16, m, features, 128, 0, Activation::kSilu, false, y_gap});
      run_gated_case(cuda, {DType::kF16, m, features, 72, 8, Activation::kGeluTanh, true, y_gap});
    }
  }
}

// Rows and columns past the end of tiles, and of the boxes that come and go.
TEST(LinearCuda, GatedTilesOfManyRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [features, k] : {std::pair<int64_t, int64_t>{32, 64}, {200, 136}, {336, 72}}) {
    for (const int64_t m : {256, 385}) {
      run_gated_case(cuda, {DType::kBF16, m, features, k, 8, Activation::kSilu, false});
    }
    run_gated_case(cuda, {DType::kF16, 300, features, k, 8, Activation::kGeluTanh, true});
  }
  run_gated_case(cuda, {DType::kBF16, 300, 2232, 72, 8, Activation::kSilu, true});
}

// Several tiles a cluster: 2 rounds of 256, 5 of 128 on 132 multiprocessors.
TEST(LinearCuda, RoundsOfGatedTilesOfManyRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  run_gated_case(cuda, {DType::kBF16, 300, 8400, 72, 0, Activation::kSilu, true});
  run_gated_case(cuda, {DType::kBF16, 260, 8504, 136, 8, Activation::kGeluTanh, false});
}

TEST(MatrixWeight, TheCpuDoesNotTakeHalfPrecision) {
  const auto cpu = create_cpu_device(1);
  std::vector<float> w(4);
  const LinearSource source{host_view(w, 2, 2), {}};
  EXPECT_EQ(LinearWeight::pack(*cpu, {&source, 1}, LinearCompute::kFloat16).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace headrace::linear_cuda_test
