#include "ops/linear/linear.h"

#include <cpuid.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/linear/cpu_amx_emulated.h"
#include "ops/linear/linear_cpu.h"
#include "ops/packing/random_matrix.h"
#include "tensor/block_quants.h"
#include "tensor/half.h"

namespace headrace::linear_test {
namespace {

float normal(Rng& rng) {  // sum of 4 uniforms: near enough to a normal, sigma 1
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng.next() >> 40) * 0x1p-24f - 0.5f;
  return sum * 1.7320508f;
}

std::vector<float> normals(Rng& rng, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = normal(rng);
  return out;
}

// Rows as transformers have them: here and there a column far larger than the rest, so that some
// blocks of some rows are wide.
std::vector<float> with_outliers(Rng& rng, int64_t rows, int64_t k) {
  std::vector<float> x = normals(rng, rows * k);
  for (int64_t r = 0; r < rows; ++r) {
    if (r % 3 == 2) continue;
    x[static_cast<size_t>(r * k + (r * 37 + 5) % k)] *= 40.0f;
    x[static_cast<size_t>(r * k + k / 2)] *= 25.0f;
  }
  return x;
}

bool has_emulation(const DeviceTraits& traits, const LinearArgs&) {
  return traits.kind == DeviceKind::kCpu && traits.cpu.avx512_vnni && traits.cpu.avx512_bf16 &&
         __builtin_cpu_supports("avx512vbmi");
}

// Of block types; kernels that multiply them as BF16 do not with 16-bit activations.
bool has_emulation_for_bf16(const DeviceTraits& traits, const LinearArgs& args) {
  const bool wide = args.weight != nullptr && args.weight->compute() == LinearCompute::kFastWide;
  return has_emulation(traits, args) && !wide;
}

template <const LinearPanelKernels& kPanels, const LinearFloatKernels& kFloats>
void emulated(OpContext& context, const LinearArgs& args) {
  LinearCpuIsa isa = kLinearAvx512Vnni;
  isa.panels = &kPanels;
  linear_cpu_tiled(context, args, {isa, kFloats});
}

// The table of linear, and the tiles of AMX emulated; the reference last.
KernelTable<LinearArgs> tested_kernels() {
  static const auto kernels = [] {
    std::vector<Kernel<LinearArgs>> list{
        {"linear/cpu/amx_emulated", has_emulation,
         emulated<kLinearAvx512VnniPanels, kLinearAmxEmulatedFloats>},
        {"linear/cpu/amx_emulated_small_blocks", has_emulation,
         emulated<kLinearAvx512VnniPanels, kLinearAmxEmulatedSmallFloats>},
        {"linear/cpu/amx_bf16_emulated", has_emulation_for_bf16,
         emulated<kLinearAmxEmulatedUnpacked, kLinearAmxEmulatedFloats>},
        {"linear/cpu/amx_bf16_emulated_small_blocks", has_emulation_for_bf16,
         emulated<kLinearAmxEmulatedSmallUnpacked, kLinearAmxEmulatedSmallFloats>}};
    std::ranges::copy(linear_kernels().all(), std::back_inserter(list));
    return list;
  }();
  return kernels;
}

// Whether a kernel multiplies many rows of a block type as BF16 (linear.h), and how many are many.
bool unpacks_to_bf16(const Kernel<LinearArgs>& kernel) {
  return kernel.name.starts_with("linear/cpu/amx_bf16");
}
constexpr int64_t kManyRows = 17;

class LinearTest : public testing::Test {
 protected:
  LinearTest()
      : device_(create_cpu_device(2, CpuFeatures::detect(), CpuBinding::kAuto, kEveryKernel)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(32 << 20).value())) {}

  LinearWeight pack(const RandomMatrix& matrix, LinearCompute compute = LinearCompute::kFast) {
    const LinearSource source{matrix.view(), {}};
    return std::move(LinearWeight::pack(*device_, {&source, 1}, compute).value());
  }
  OpContext context() { return {*device_, *stream_, workspace_, mesh_}; }
  bool runs(const Kernel<LinearArgs>& kernel) {
    return kernel.supports(device_->traits(), LinearArgs{});
  }
  bool runs(const Kernel<LinearArgs>& kernel, const LinearWeight& weight) {
    return kernel.supports(device_->traits(), {.weight = &weight});
  }
  // Rows of y = x W^T by one kernel; x and y dense.
  std::vector<float> run(const Kernel<LinearArgs>& kernel, const LinearWeight& weight,
                         const float* x, int64_t m) {
    std::vector<float> y(static_cast<size_t>(m * weight.n()), kPoison);
    OpContext op = context();
    kernel.run(op, dense_args(weight, x, m, y.data()));
    return y;
  }
  static LinearArgs dense_args(const LinearWeight& weight, const float* x, int64_t m, float* y) {
    return {.x = {reinterpret_cast<const std::byte*>(x), DType::kF32, Shape{m, weight.k()}},
            .weight = &weight,
            .bias = nullptr,
            .y = {reinterpret_cast<std::byte*>(y), DType::kF32, Shape{m, weight.n()}}};
  }

  static constexpr float kPoison = 1e30f;
  static constexpr bool kEveryKernel = false;  // not those alone that are batch-invariant
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
};

// What linear.h promises, in plain code: sequential, exact integers, std::fma.
class Definition {
 public:
  Definition(const LinearWeight& weight, const RandomMatrix& matrix)
      : weight_(weight), matrix_(matrix) {}

  float element(const float* x, int64_t n) const {
    return is_quantised(matrix_.dtype) ? quantised(x, n) : plain(x, n);
  }
  // As `kernel` computes it for many rows: AMX has its own order for BF16.
  float element(const Kernel<LinearArgs>& kernel, const float* x, int64_t n) const {
    const bool tiles = kernel.name.starts_with("linear/cpu/amx") && matrix_.dtype == DType::kBF16;
    const bool unpacked = unpacks_to_bf16(kernel) && is_quantised(matrix_.dtype);
    return tiles || unpacked ? bf16_tiles(x, n) : element(x, n);
  }

 private:
  float plain(const float* x, int64_t n) const {
    std::vector<float> w(static_cast<size_t>(weight_.k()));
    weight_.read_row(n, w.data());
    float acc = 0;
    if (matrix_.dtype == DType::kBF16) {
      for (size_t c = 0; c < w.size(); c += 2) {
        if (c + 1 < w.size()) acc = std::fma(w[c + 1], rounded(x[c + 1]), acc);
        acc = std::fma(w[c], rounded(x[c]), acc);
      }
      return acc;
    }
    for (size_t c = 0; c < w.size(); ++c) acc = std::fma(w[c], x[c], acc);
    return acc;
  }

  float bf16_tiles(const float* x, int64_t n) const {
    std::vector<float> w(static_cast<size_t>(weight_.k()));
    weight_.read_row(n, w.data());
    float acc = 0;
    for (size_t first = 0; first < w.size(); first += 32) {
      float chain[2] = {};
      for (size_t c = first; c < std::min(first + 32, w.size()); ++c) {
        chain[c % 2] = std::fma(rounded(x[c]), rounded(w[c]), chain[c % 2]);
      }
      acc += chain[0] + chain[1];
    }
    return acc;
  }

  static float rounded(float x) { return bfloat16_to_float(float_to_bfloat16(x)); }

  float quantised(const float* x, int64_t n) const {
    const double wide_above = wide_from() * root_mean_square_of_maxima(x);
    const int64_t columns = dtype_info(matrix_.dtype).block_elements;
    const ConstTensorView view = matrix_.view();
    BlockQuants block;
    float acc = 0;
    for (int64_t c = 0; c < matrix_.k; c += 32) {
      const int64_t b = c / columns;
      unpack_block(matrix_.dtype, view.row(n) + b * dtype_info(matrix_.dtype).block_bytes, block);
      const float levels = static_cast<double>(largest(x + c)) > wide_above ? 32512.0f : 127.0f;
      acc = add_32_columns(block, static_cast<int>(c % columns), x + c, levels, acc);
    }
    return acc;
  }

  double wide_from() const {
    return weight_.compute() == LinearCompute::kFastWide ? 0.0 : static_cast<double>(1.6f);
  }

  static float largest(const float* x) {  // of 32 columns
    float largest = 0;
    for (int c = 0; c < 32; ++c) largest = std::max(largest, std::abs(x[c]));
    return largest;
  }

  double root_mean_square_of_maxima(const float* x) const {
    double squares = 0;
    for (int64_t c = 0; c < matrix_.k; c += 32) squares += std::pow(double{largest(x + c)}, 2);
    return std::sqrt(squares / static_cast<double>(matrix_.k / 32));
  }

  static float add_32_columns(const BlockQuants& block, int first, const float* x, float levels,
                              float acc) {
    const float amax = largest(x);
    const float d = amax * (1.0f / levels);
    const float inverse = levels / amax;
    for (int c = 0; c < 32; c += block.part_columns) {
      const auto part = static_cast<size_t>((first + c) / block.part_columns);
      int32_t dot = 0, sum = 0;
      for (int i = c; i < c + block.part_columns; ++i) {
        const auto q = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
        dot += q * block.q[static_cast<size_t>(first + i)];
        sum += q;
      }
      acc = std::fma(block.scale[part] * d, static_cast<float>(dot), acc);
      if (block.has_minima) {
        acc = std::fma(block.minimum[part], d * static_cast<float>(sum), acc);
      }
    }
    return acc;
  }

  const LinearWeight& weight_;
  const RandomMatrix& matrix_;
};

bool is_reference(const Kernel<LinearArgs>& kernel) { return kernel.name.ends_with("reference"); }

std::vector<int64_t> inner_sizes(DType dtype) {
  if (dtype_info(dtype).block_elements == 256) return {256, 768};
  if (is_quantised(dtype)) return {32, 64, 576};
  return {1, 33, 576};
}

TEST_F(LinearTest, EveryKernelComputesTheDefinitionBitForBit) {
  Rng rng(1);
  for (const DType dtype : kWeightTypes) {
    for (const int64_t k : inner_sizes(dtype)) {
      for (const int64_t n : {1, 16, 37}) {
        const RandomMatrix matrix(rng, dtype, n, k);
        for (const auto compute : {LinearCompute::kFast, LinearCompute::kFastWide}) {
          const LinearWeight weight = pack(matrix, compute);
          const Definition definition(weight, matrix);
          constexpr int64_t kM = 19;
          const std::vector<float> x = with_outliers(rng, kM, k);
          for (const auto& kernel : tested_kernels()) {
            if (is_reference(kernel) || !runs(kernel, weight)) continue;
            const std::vector<float> y = run(kernel, weight, x.data(), kM);
            for (int64_t i = 0; i < kM * n; ++i) {
              ASSERT_EQ(y[static_cast<size_t>(i)], definition.element(kernel, &x[i / n * k], i % n))
                  << kernel.name << " " << dtype_name(dtype) << " k " << k << " n " << n << " row "
                  << i / n << " column " << i % n;
            }
          }
        }
      }
    }
  }
}

// A matrix of which every byte but scales is `fill`.
RandomMatrix filled(Rng& rng, DType dtype, int64_t n, int64_t k, int fill) {
  RandomMatrix matrix(rng, dtype, n, k);
  const auto type = static_cast<size_t>(dtype) - static_cast<size_t>(DType::kQ8_0);
  const auto size = static_cast<size_t>(dtype_info(dtype).block_bytes);
  const auto scale = static_cast<size_t>(kBlockSources[type].scale_at);
  const auto minimum = static_cast<size_t>(kBlockSources[type].minimum_at);
  for (size_t i = 0; i < matrix.bytes.size(); ++i) {
    const size_t at = i % size;
    const bool of_half = at - scale < 2 || (minimum != 0 && at - minimum < 2);
    if (!of_half) matrix.bytes[i] = static_cast<std::byte>(fill);
  }
  return matrix;
}

// The largest and the smallest quants against the largest activations: what sums products in fewer
// than 32 bits has no room to spare. Wide blocks have q = 32,512 and +-(127 * 256 - 128) or so,
// whose low bytes are -128.
TEST_F(LinearTest, QuantsAtTheirLimitsAreExact) {
  Rng rng(15);
  constexpr int64_t kN = 17, kM = 19, kK = 256;
  const auto value = [](int64_t row, int64_t column) {
    const bool negative = row % 3 == 0 ? false : row % 3 == 1 ? true : column % 2 == 0;
    const float levels = column % 32 == 0 || row % 2 == 0 ? 1.0f : 32384.0f / 32512.0f;
    return negative ? -levels : levels;
  };
  std::vector<float> x(kM * kK);
  for (int64_t i = 0; i < kM * kK; ++i) x[static_cast<size_t>(i)] = value(i / kK, i % kK);
  for (const DType dtype : kWeightTypes) {
    if (!is_quantised(dtype)) continue;
    for (const int fill : {0x00, 0xff, 0x80, 0x7f, 0x81}) {
      const RandomMatrix matrix = filled(rng, dtype, kN, kK, fill);
      for (const auto compute : {LinearCompute::kFast, LinearCompute::kFastWide}) {
        const LinearWeight weight = pack(matrix, compute);
        const Definition definition(weight, matrix);
        for (const auto& kernel : tested_kernels()) {
          if (is_reference(kernel) || !runs(kernel, weight)) continue;
          const std::vector<float> y = run(kernel, weight, x.data(), kM);
          for (int64_t i = 0; i < kM * kN; ++i) {
            ASSERT_EQ(y[static_cast<size_t>(i)],
                      definition.element(kernel, &x[i / kN * kK], i % kN))
                << kernel.name << " " << dtype_name(dtype) << " bytes " << fill << " row "
                << i / kN;
          }
        }
      }
    }
  }
}

// Relative to the norm of a row of W. Activations of at most 3.5 rounded to 3.5 / 127 have errors
// of sigma 8e-3, to 3.5 / 32512 of 3e-5, rounded to BF16 of 1.1e-3; 5 sigma are allowed.
TEST_F(LinearTest, IsCloseToTheReference) {
  Rng rng(2);
  for (const DType dtype : kWeightTypes) {
    for (const auto compute : {LinearCompute::kFast, LinearCompute::kFastWide}) {
      constexpr int64_t kN = 40, kK = 1536, kM = 5;
      const RandomMatrix matrix(rng, dtype, kN, kK);
      const LinearWeight weight = pack(matrix, compute);
      const double sigmas = compute == LinearCompute::kFast ? 4e-2 : 1.6e-4;
      const std::vector<float> x = normals(rng, kM * kK);
      const std::vector<float> exact = run(tested_kernels().back(), weight, x.data(), kM);
      for (const auto& kernel : tested_kernels()) {
        if (!runs(kernel)) continue;
        const std::vector<float> y = run(kernel, weight, x.data(), kM);
        std::vector<float> w(kK);
        for (int64_t n = 0; n < kN; ++n) {
          weight.read_row(n, w.data());
          double squares = 0;
          for (const float v : w) squares += double{v} * v;
          const double bound = std::sqrt(squares) * (dtype == DType::kBF16 ? 5.6e-3
                                                     : is_quantised(dtype) ? sigmas
                                                                           : 1e-5);
          for (int64_t m = 0; m < kM; ++m) {
            const auto at = static_cast<size_t>(m * kN + n);
            ASSERT_NEAR(y[at], exact[at], bound) << kernel.name << " " << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST_F(LinearTest, ARowHasTheSameBitsInEveryBatch) {
  Rng rng(3);
  constexpr int64_t kN = 50, kRows = 512;
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 96);
    const LinearWeight weight = pack(RandomMatrix(rng, dtype, kN, k));
    const std::vector<float> x = with_outliers(rng, kRows, k);
    for (const auto& kernel : tested_kernels()) {
      if (is_reference(kernel) || !runs(kernel)) continue;
      const std::vector<float> all = run(kernel, weight, x.data(), kRows);
      const bool few_differ = unpacks_to_bf16(kernel) && is_quantised(dtype);
      for (int64_t m = few_differ ? kManyRows : 1; m <= 70; ++m) {
        const int64_t first = (m * 37) % (kRows - m);  // any offset: another tile, another lane
        const std::vector<float> some = run(kernel, weight, x.data() + first * k, m);
        ASSERT_EQ(std::memcmp(some.data(), all.data() + first * kN, some.size() * 4), 0)
            << kernel.name << " " << dtype_name(dtype) << " m " << m;
      }
    }
  }
}

// One thread has all of W: several chunks of K, more panels than one chunk of x serves, a last one
// alone; and every choice of wide rows in tiles of six.
TEST_F(LinearTest, PanelsGiveTheBitsOfAFewRows) {
  Rng rng(14);
  constexpr int64_t kN = 300, kK = 1536, kRows = 140, kFew = 14;
  const auto alone = create_cpu_device(1);
  std::vector<float> x = normals(rng, kRows * kK);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t block = 0; block < kK / 32; block += 4) {
      const int64_t wide_rows = (block / 4 + r / 6) % 64;
      if ((wide_rows >> r % 6 & 1) != 0) x[static_cast<size_t>(r * kK + block * 32 + r % 32)] = 40;
    }
  }
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kQ2_K}) {
    const LinearWeight weight = pack(RandomMatrix(rng, dtype, kN, kK));
    for (const auto& kernel : tested_kernels()) {
      if (is_reference(kernel) || !runs(kernel, weight) || unpacks_to_bf16(kernel)) continue;
      std::vector<float> all(kRows * kN, kPoison);
      OpContext op{*alone, *stream_, workspace_, mesh_};
      kernel.run(op, dense_args(weight, x.data(), kRows, all.data()));
      for (int64_t row = 0; row < kRows; row += kFew) {
        const std::vector<float> few = run(kernel, weight, x.data() + row * kK, kFew);
        ASSERT_EQ(std::memcmp(few.data(), all.data() + row * kN, few.size() * 4), 0)
            << kernel.name << " " << dtype_name(dtype) << " row " << row;
      }
    }
  }
}

TEST_F(LinearTest, OneThreadAndManyGiveTheSameBits) {
  Rng rng(4);
  const auto alone = create_cpu_device(1);
  const auto many = create_cpu_device(3);
  for (const DType dtype : {DType::kF16, DType::kQ4_1}) {
    const LinearWeight weight = pack(RandomMatrix(rng, dtype, 1000, 256));
    for (const int64_t m : {1, 3, 40, 370}) {
      const std::vector<float> x = normals(rng, m * weight.k());
      std::vector<float> y[2];
      for (int i = 0; i < 2; ++i) {
        y[i].assign(static_cast<size_t>(m * weight.n()), kPoison);
        OpContext op{i == 0 ? *alone : *many, *stream_, workspace_, mesh_};
        linear(op, dense_args(weight, x.data(), m, y[i].data()));
      }
      EXPECT_EQ(y[0], y[1]) << dtype_name(dtype) << " m " << m;
    }
  }
}

// Wide rows with poison around the used part; y is read only when asked to accumulate.
TEST_F(LinearTest, KeepsToItsRowsAndAddsBiasThenResidual) {
  Rng rng(5);
  constexpr int64_t kN = 37, kYStride = 45;
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 64), x_stride = k + 16;
    const RandomMatrix matrix(rng, dtype, kN, k);
    const LinearWeight weight = pack(matrix);
    const std::vector<float> bias = normals(rng, kN);
    for (const auto& kernel : tested_kernels()) {
      if (!runs(kernel)) continue;
      for (const int64_t m : {1, 2, 7, 19}) {
        const std::vector<float> x = normals(rng, m * x_stride);
        std::vector<float> dense;
        for (int64_t r = 0; r < m; ++r) {
          dense.insert(dense.end(), x.begin() + r * x_stride, x.begin() + r * x_stride + k);
        }
        const std::vector<float> product = run(kernel, weight, dense.data(), m);
        for (const auto output : {LinearOutput::kStore, LinearOutput::kAccumulate}) {
          std::vector<float> y(static_cast<size_t>(m * kYStride), kPoison);
          if (output == LinearOutput::kAccumulate) std::ranges::fill(y, 0.25f);
          const float old = y[0];
          LinearArgs args{.x = {reinterpret_cast<const std::byte*>(x.data()), DType::kF32,
                                Shape{m, k}, x_stride * 4},
                          .weight = &weight,
                          .bias = bias.data(),
                          .y = {reinterpret_cast<std::byte*>(y.data()), DType::kF32, Shape{m, kN},
                                kYStride * 4},
                          .output = output};
          OpContext op = context();
          kernel.run(op, args);
          for (int64_t i = 0; i < m * kYStride; ++i) {
            const int64_t r = i / kYStride, n = i % kYStride;
            const float got = y[static_cast<size_t>(i)];
            if (n >= kN) {
              ASSERT_EQ(got, old);
              continue;
            }
            float want = product[static_cast<size_t>(r * kN + n)] + bias[static_cast<size_t>(n)];
            if (output == LinearOutput::kAccumulate) want = old + want;
            if (is_reference(kernel)) {  // one rounding for all of it
              ASSERT_NEAR(got, want, 1e-5);
            } else {
              ASSERT_EQ(got, want) << kernel.name << " " << dtype_name(dtype) << " m " << m;
            }
          }
        }
      }
    }
  }
}

TEST_F(LinearTest, StacksMatricesOfSeveralTypesAndReordersRows) {
  Rng rng(6);
  constexpr int64_t kK = 64;
  const RandomMatrix a(rng, DType::kQ4_1, 40, kK), b(rng, DType::kQ4_1, 23, kK),
      c(rng, DType::kQ8_0, 17, kK), d(rng, DType::kF16, 5, kK);
  std::vector<int32_t> order;
  for (int32_t r = 0; r < 23; ++r) order.push_back((r * 7 + 3) % 23);
  const LinearSource sources[] = {
      {a.view(), {}}, {b.view(), order}, {c.view(), {}}, {d.view(), {}}};
  const std::vector<float> x = normals(rng, 3 * kK);
  for (const auto compute : {LinearCompute::kFast, LinearCompute::kFloat32}) {
    auto stack = LinearWeight::pack(*device_, sources, compute);
    ASSERT_TRUE(stack.ok());
    ASSERT_EQ(stack->n(), 40 + 23 + 17 + 5);
    for (const auto& kernel : tested_kernels()) {
      if (!runs(kernel)) continue;
      const std::vector<float> y = run(kernel, *stack, x.data(), 3);
      int64_t column = 0;
      for (const LinearSource& source : sources) {
        const LinearSource plain{source.weight, {}};
        auto alone = LinearWeight::pack(*device_, {&plain, 1}, compute);
        const std::vector<float> want = run(kernel, *alone, x.data(), 3);
        for (int64_t n = 0; n < alone->n(); ++n, ++column) {
          const int64_t from =
              source.row_order.empty() ? n : source.row_order[static_cast<size_t>(n)];
          for (int64_t m = 0; m < 3; ++m) {
            ASSERT_EQ(y[static_cast<size_t>(m * stack->n() + column)],
                      want[static_cast<size_t>(m * alone->n() + from)])
                << kernel.name << " column " << column;
          }
        }
      }
    }
  }
}

// Pieces of more than one group, groups that are not full, rows in an order of their own.
TEST_F(LinearTest, AWeightThatIsPackedLaterGivesTheSameBits) {
  Rng rng(12);
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 4096);
    const RandomMatrix a(rng, dtype, 120, k), b(rng, DType::kF16, 9, k);
    std::vector<int32_t> order;
    for (int32_t r = 0; r < 120; ++r) order.push_back((r * 7 + 3) % 120);
    const LinearSource sources[] = {{a.view(), order}, {b.view(), {}}};
    const auto packed = LinearWeight::pack(*device_, sources, LinearCompute::kFast);
    int told = 0;
    auto later = LinearWeight::defer(*device_, sources, LinearCompute::kFast,
                                     [&](const LinearWeight&) { ++told; });
    ASSERT_TRUE(later.ok() && !later->is_packed());
    EXPECT_EQ(later->packed_bytes(), packed->packed_bytes());
    const std::vector<float> x = with_outliers(rng, 19, k);
    for (const auto& kernel : tested_kernels()) {
      if (!runs(kernel, *later)) continue;
      for (const int64_t m : {1, 19}) {
        Workspace exact(std::move(device_->allocate(linear_workspace_bytes(m, *later)).value()));
        OpContext op{*device_, *stream_, exact, mesh_};
        std::vector<float> y(static_cast<size_t>(m * 129), kPoison);
        kernel.run(op, dense_args(*later, x.data(), m, y.data()));
        ASSERT_EQ(y, run(kernel, *packed, x.data(), m)) << kernel.name << dtype_name(dtype) << m;
      }
    }
    EXPECT_EQ(told, 0);
    ASSERT_TRUE(later->reserve().ok());
    later->pack_now();
    EXPECT_TRUE(later->is_packed());
    EXPECT_EQ(told, 1);
    EXPECT_TRUE(std::ranges::equal(later->packed(), packed->packed()));
  }
}

TEST_F(LinearTest, Float32ComputeUsesDequantisedWeightsAndExactActivations) {
  Rng rng(7);
  for (const DType dtype : kWeightTypes) {
    const LinearWeight weight = pack(RandomMatrix(rng, dtype, 33, 1536), LinearCompute::kFloat32);
    const std::vector<float> x = normals(rng, 2 * weight.k());
    const std::vector<float> exact = run(tested_kernels().back(), weight, x.data(), 2);
    for (const auto& kernel : tested_kernels()) {
      if (!runs(kernel)) continue;
      const std::vector<float> y = run(kernel, weight, x.data(), 2);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], exact[i], 1e-4) << kernel.name;
    }
  }
}

TEST_F(LinearTest, ANaNOrAnInfinityStaysInItsRow) {
  Rng rng(8);
  constexpr int64_t kM = 11, kBad = 4;
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const DType dtype : kWeightTypes) {
      const LinearWeight weight = pack(RandomMatrix(rng, dtype, 50, whole_blocks(dtype, 96)));
      std::vector<float> x = normals(rng, kM * weight.k());
      for (const auto& kernel : tested_kernels()) {
        if (!runs(kernel)) continue;
        const std::vector<float> clean = run(kernel, weight, x.data(), kM);
        const float kept = std::exchange(x[static_cast<size_t>(kBad * weight.k() + 50)], bad);
        const std::vector<float> y = run(kernel, weight, x.data(), kM);
        x[static_cast<size_t>(kBad * weight.k() + 50)] = kept;
        for (int64_t i = 0; i < kM * 50; ++i) {
          const float got = y[static_cast<size_t>(i)];
          if (i / 50 == kBad) {
            ASSERT_FALSE(std::isfinite(got)) << kernel.name << " " << dtype_name(dtype);
          } else {
            ASSERT_EQ(got, clean[static_cast<size_t>(i)]) << kernel.name;
          }
        }
      }
    }
  }
}

TEST_F(LinearTest, ZeroTinyAndHugeActivationsAreExactEnough) {
  Rng rng(9);
  for (const DType dtype : kWeightTypes) {
    const RandomMatrix matrix(rng, dtype, 20, whole_blocks(dtype, 64));
    const LinearWeight weight = pack(matrix);
    for (const float size : {0.0f, 1e-37f, 1e-20f, 1e30f}) {
      std::vector<float> x = normals(rng, matrix.k);
      for (float& v : x) v *= size;
      const std::vector<float> exact = run(tested_kernels().back(), weight, x.data(), 1);
      for (const auto& kernel : tested_kernels()) {
        if (!runs(kernel)) continue;
        const std::vector<float> y = run(kernel, weight, x.data(), 1);
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(y[i], exact[i], size * (is_quantised(dtype) ? 0.3f : 1e-2f) + 1e-24f)
              << kernel.name << " " << size;
        }
      }
    }
  }
}

// qemu's vcvtph2ps obeys denormals-are-zero; that of CPUs does not (SDM, VCVTPH2PS).
bool emulated_by_qemu() {
  uint32_t signature[4] = {};
  __cpuid(0x40000000, signature[0], signature[1], signature[2], signature[3]);
  return std::memcmp(&signature[1], "TCGTCGTCGTCG", 12) == 0;
}

TEST_F(LinearTest, SubnormalHalvesCount) {
  if (emulated_by_qemu()) GTEST_SKIP() << "qemu flushes them";
  Rng rng(13);
  RandomMatrix halves(rng, DType::kF16, 16, 32);
  for (size_t i = 0; i < halves.bytes.size(); i += 2) {
    const uint16_t tiny = static_cast<uint16_t>(i % 1024);
    std::memcpy(&halves.bytes[i], &tiny, 2);
  }
  RandomMatrix blocks(rng, DType::kQ4_0, 16, 32);
  for (size_t i = 0; i < blocks.bytes.size(); i += 18) {
    const uint16_t tiny = static_cast<uint16_t>(1 + i);
    std::memcpy(&blocks.bytes[i], &tiny, 2);
  }
  for (const RandomMatrix* matrix : {&halves, &blocks}) {
    const LinearWeight weight = pack(*matrix);
    const Definition definition(weight, *matrix);
    const std::vector<float> x = normals(rng, 32);
    for (const auto& kernel : tested_kernels()) {
      if (is_reference(kernel) || !runs(kernel)) continue;
      const std::vector<float> y = run(kernel, weight, x.data(), 1);
      for (int64_t n = 0; n < 16; ++n) {
        ASSERT_NE(y[static_cast<size_t>(n)], 0);
        ASSERT_EQ(y[static_cast<size_t>(n)], definition.element(x.data(), n)) << kernel.name;
      }
    }
  }
}

// Where FMA is emulated in pairs, a tie in one lane takes the slow way for its neighbour too.
TEST_F(LinearTest, AnInfinityBesideATieStaysInfinite) {
  Rng rng(14);
  RandomMatrix matrix(rng, DType::kF32, 16, 2);
  std::vector<float> values(32, 1.0f);  // 1 + 2^-24 lies between two floats
  values[0] = -std::numeric_limits<float>::infinity();
  std::memcpy(matrix.bytes.data(), values.data(), matrix.bytes.size());
  const LinearWeight weight = pack(matrix);
  const float x[] = {1.0f, 0x1p-24f};
  for (const auto& kernel : tested_kernels()) {
    if (!runs(kernel)) continue;
    const std::vector<float> y = run(kernel, weight, x, 1);
    EXPECT_EQ(y[0], values[0]) << kernel.name;
    EXPECT_EQ(y[1], 1.0f) << kernel.name;
  }
}

TEST_F(LinearTest, TakesNoMoreWorkspaceThanItSays) {
  Rng rng(10);
  for (const DType dtype : kWeightTypes) {
    const LinearWeight weight = pack(RandomMatrix(rng, dtype, 20, whole_blocks(dtype, 96)));
    for (const int64_t m : {1, 5, 130}) {
      const std::vector<float> x = normals(rng, m * weight.k());
      std::vector<float> y(static_cast<size_t>(m * 20));
      Workspace exact(std::move(device_->allocate(linear_workspace_bytes(m, weight)).value()));
      OpContext op{*device_, *stream_, exact, mesh_};
      for (const auto& kernel : tested_kernels()) {
        if (runs(kernel)) kernel.run(op, dense_args(weight, x.data(), m, y.data()));
      }
    }
  }
}

TEST_F(LinearTest, NoRowsIsNoWork) {
  Rng rng(11);
  const LinearWeight weight = pack(RandomMatrix(rng, DType::kQ8_0, 16, 32));
  OpContext op = context();
  float nothing = kPoison;
  linear(op, dense_args(weight, &nothing, 0, &nothing));
  EXPECT_EQ(nothing, kPoison);
}

TEST_F(LinearTest, WrongShapesAreBugs) {
  Rng rng(12);
  const LinearWeight weight = pack(RandomMatrix(rng, DType::kF32, 16, 32));
  std::vector<float> x(64), y(64);
  LinearArgs args = dense_args(weight, x.data(), 2, y.data());
  args.x.shape = Shape{2, 31};
  OpContext op = context();
  EXPECT_DEATH(linear(op, args), "columns");
}

}  // namespace
}  // namespace headrace::linear_test
