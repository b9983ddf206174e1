// norm_linear and norm_gated_linear on CUDA against sums in double of rows normalised in double and
// rounded to their type, and that a row's bits are its own. (Without a norm, resident.h runs
// in linear_cuda_test.cc with the other kernels of linear and gated_linear.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/norm_linear.h"
#include "ops/packing/random_matrix.h"
#include "ops/rows/activation.h"

namespace headrace::norm_linear_cuda_test {
namespace {

constexpr float kEps = 1e-5f;

LinearCompute compute_of(DType dtype) {
  return dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
}
LinearWeight random_weight(TestDevice& cuda, DType dtype, Rng& rng, int64_t n, int64_t k,
                           std::vector<float>* values) {
  *values = rounded_floats(rng, dtype, n * k, 0.2f);
  const LinearSource source{host_view(*values, n, k), {}};
  return std::move(LinearWeight::pack(cuda.device(), {&source, 1}, compute_of(dtype)).value());
}

struct Case {
  DType dtype;
  int64_t m, n, k, gap;  // n: columns of y
  bool bias, gated;
  Activation activation = Activation::kSilu;

  std::string name() const {
    return std::string(dtype_name(dtype)) + " M" + std::to_string(m) + " N" + std::to_string(n) +
           " K" + std::to_string(k) + " gap" + std::to_string(gap) + (bias ? " bias" : "") +
           (gated ? " gated" : "");
  }
};

// Rows normalised in double, rounded to the type.
std::vector<float> normalised(const Case& c, const std::vector<float>& x,
                              const std::vector<float>& weight) {
  std::vector<float> rows(x.size());
  for (int64_t row = 0; row < c.m; ++row) {
    const float* from = &x[static_cast<size_t>(row * c.k)];
    double sum = 0;
    for (int64_t i = 0; i < c.k; ++i) sum += double{from[i]} * from[i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(c.k) + kEps);
    for (int64_t i = 0; i < c.k; ++i) {
      rows[static_cast<size_t>(row * c.k + i)] =
          static_cast<float>(from[i] * scale * weight[static_cast<size_t>(i)]);
    }
  }
  return decode(c.dtype, encode(c.dtype, rows));
}

// A product and the sum of its terms' sizes.
struct Product {
  double sum = 0, size = 0;
};

class Reference {
 public:
  Reference(const Case& c, std::vector<float> rows, std::vector<float> w, std::vector<float> bias)
      : c_(c), rows_(std::move(rows)), w_(std::move(w)), bias_(std::move(bias)) {}

  // A value of y and how far a kernel may be from it: f32 sums; a normalised value may
  // round the other way; gate and up may have been rounded in between; y is rounded.
  std::pair<double, double> at(int64_t row, int64_t column) const {
    const double unit = unit_of(c_.dtype);
    const auto bound = [&](const Product& p) {
      return 0.1 * unit * p.size + 2 * unit * (std::abs(p.sum) + 0.01);
    };
    const Product value = product(row, column);
    if (!c_.gated) return {value.sum, bound(value)};
    const Product up = product(row, c_.n + column);
    const double act = activated(c_.activation, value.sum);
    return {act * up.sum, 1.2 * bound(value) * std::abs(up.sum) + std::abs(act) * bound(up) +
                              1.2 * bound(value) * bound(up) +
                              2 * unit * (std::abs(act * up.sum) + 0.01)};
  }

 private:
  Product product(int64_t row, int64_t of) const {
    Product p{c_.bias ? bias_[static_cast<size_t>(of)] : 0.0, 0};
    for (int64_t i = 0; i < c_.k; ++i) {
      const double term = double{rows_[static_cast<size_t>(row * c_.k + i)]} *
                          w_[static_cast<size_t>(of * c_.k + i)];
      p.sum += term;
      p.size += std::abs(term);
    }
    return p;
  }

  const Case& c_;
  const std::vector<float> rows_, w_, bias_;
};

void check(const Case& c, const Reference& reference, const std::vector<float>& result) {
  for (size_t i = 0; i < result.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / c.n, column = static_cast<int64_t>(i) % c.n;
    const auto [expected, bound] = reference.at(row, column);
    ASSERT_NEAR(result[i], expected, bound) << "row " << row << " column " << column;
  }
}

void run_case(TestDevice& cuda, const Case& c) {
  SCOPED_TRACE(c.name());
  Rng rng(static_cast<uint64_t>(c.m * 1000003 + c.n * 1009 + c.k));
  const int64_t rows_of_w = c.gated ? 2 * c.n : c.n;
  std::vector<float> w;
  const LinearWeight weight = random_weight(cuda, c.dtype, rng, rows_of_w, c.k, &w);
  const std::vector<float> x = rounded_floats(rng, c.dtype, c.m * c.k, 3.0f);
  const std::vector<float> norm_weight = random_floats(rng, c.k);
  const std::vector<float> bias = random_floats(rng, rows_of_w);
  const Reference reference(c, normalised(c, x, norm_weight), w, bias);
  const CudaArray<float> norm_on(cuda, norm_weight), bias_on(cuda, bias);
  CudaMatrix x_on(cuda, c.dtype, c.m, c.k, c.gap, &x);
  const auto run = [&](const auto& kernels, const auto& args_of) {
    for (const auto& kernel : kernels.all()) {
      CudaMatrix normed(cuda, c.dtype, c.m, c.k, 0, nullptr);
      CudaMatrix scratch(cuda, c.dtype, c.m, rows_of_w, 0, nullptr);
      CudaMatrix y(cuda, c.dtype, c.m, c.n, c.gap, nullptr);
      const RmsNormArgs norm{.x = x_on.view(),
                             .residual = {},
                             .weight = norm_on.data(),
                             .eps = kEps,
                             .out = normed.view()};
      const auto args = args_of(norm, scratch.view(), y.view());
      if (!takes(cuda, kernel, args)) continue;
      SCOPED_TRACE(std::string(kernel.name));
      OpContext context = cuda.context();
      kernel.run(context, args);
      check(c, reference, y.read());
    }
  };
  const float* bias_data = c.bias ? bias_on.data() : nullptr;
  if (c.gated) {
    run(norm_gated_linear_kernels(),
        [&](const RmsNormArgs& norm, const TensorView& scratch, const TensorView& y) {
          return NormGatedLinearArgs{.norm = norm,
                                     .gated = {.x = norm.out,
                                               .weight = &weight,
                                               .bias = bias_data,
                                               .activation = c.activation,
                                               .gate_up = scratch,
                                               .y = y}};
        });
  } else {
    run(norm_linear_kernels(), [&](const RmsNormArgs& norm, const TensorView&,
                                   const TensorView& y) {
      return NormLinearArgs{
          .norm = norm, .linear = {.x = norm.out, .weight = &weight, .bias = bias_data, .y = y}};
    });
  }
}

TEST(NormLinearCuda, EveryKernelAgreesWithDoubles) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{960, 576}, {34, 80}, {18, 16}, {34, 72}, {96, 896}}) {
    for (const int64_t m : {1, 5, 16, 17, 64, 130, 300}) {
      run_case(cuda, {DType::kBF16, m, n, k, 0, false, false});
      run_case(cuda, {DType::kBF16, m, n, k, 8, true, true});
    }
    run_case(cuda, {DType::kF16, 33, n, k, 8, true, false});
    run_case(cuda, {DType::kF16, 12, n, k, 0, false, true, Activation::kGeluTanh});
  }
  run_case(cuda, {DType::kBF16, 64, 1536, 576, 0, false, true});
  for (const int64_t m : {1, 2, 3, 4, 7, 8}) {
    run_case(cuda, {DType::kBF16, m, 2051, 1088, 8, m % 2 == 0, false});
    run_case(cuda, {DType::kBF16, m, 1030, 1024, 0, m % 2 == 1, true});
    run_case(cuda, {DType::kF16, m, 1030, 1024, 8, true, true, Activation::kGeluTanh});
  }
  run_case(cuda, {DType::kBF16, 9, 50, 33, 0, true, false});  // rows on no 16 bytes
}

// A residual is added to x, whatever kernel is preferred: one that cannot leaves it to two ops.
TEST(NormLinearCuda, AResidualIsAddedByTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kRows = 7, kN = 32, kK = 64;
  Rng rng(4);
  std::vector<float> w;
  const LinearWeight weight = random_weight(cuda, DType::kBF16, rng, kN, kK, &w);
  const std::vector<float> x = rounded_floats(rng, DType::kBF16, kRows * kK);
  const CudaArray<float> norm_on(cuda, random_floats(rng, kK));
  std::vector<std::vector<float>> sums, results;
  for (const bool preferred : {false, true}) {
    OpHooks hooks;
    if (preferred) hooks.preferred = {"norm_linear/cuda/resident_any_rows"};
    CudaMatrix x_on(cuda, DType::kBF16, kRows, kK, 0, &x);
    CudaMatrix residual(cuda, DType::kBF16, kRows, kK, 0, &x);
    CudaMatrix normed(cuda, DType::kBF16, kRows, kK, 0, nullptr);
    CudaMatrix y(cuda, DType::kBF16, kRows, kN, 0, nullptr);
    OpContext context = cuda.context();
    context.hooks = &hooks;
    norm_linear(
        context,
        {.norm = {.x = x_on.view(),
                  .residual = residual.view(),
                  .weight = norm_on.data(),
                  .eps = kEps,
                  .out = normed.view()},
         .linear = {.x = normed.view(), .weight = &weight, .bias = nullptr, .y = y.view()}});
    sums.push_back(x_on.read());
    results.push_back(y.read());
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(sums[0][0], 2 * x[0]);
}

// Of 16-bit results by F16 weights, and by others' rounding: within a share of their size.
void expect_near(const std::vector<float>& result, const std::vector<float>& expected,
                 double share) {
  ASSERT_EQ(result.size(), expected.size());
  double size = 0;
  for (const float value : expected) size += double{value} * value;
  size = std::sqrt(size / static_cast<double>(expected.size()));
  ASSERT_GT(size, 0);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(result[i], expected[i], share * (size + std::abs(expected[i]))) << "element " << i;
  }
}

// Some dozens of rows and many by packed block types: the kernel that makes F16 of rows normalises
// them, too, and adds what waits, as two ops do.
TEST(NormLinearCuda, RowsOfBlocksAreNormalisedAsByTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  struct Shape3 {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Shape3{9, 96, 576},
                                {40, 130, 2304},
                                {64, 96, 14336},
                                {65, 96, 576},
                                {130, 400, 2304},
                                {300, 34, 14336},
                                {600, 160, 4096},
                                {1600, 32, 20480},
                                {70, 32, 20480}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " M" + std::to_string(m) + " N" +
                   std::to_string(n) + " K" + std::to_string(k));
      Rng rng(static_cast<uint64_t>(m + k));
      const RandomMatrix values(rng, DType::kQ8_0, n, k);
      const LinearSource source{values.view(), {}};
      const LinearWeight weight =
          std::move(LinearWeight::pack(cuda.device(), {&source, 1}, compute_of(dtype)).value());
      ASSERT_FALSE(weight.is_matrix());
      const std::vector<float> x = rounded_floats(rng, dtype, m * k);
      const std::vector<float> waiting = rounded_floats(rng, dtype, m * k);
      const CudaArray<float> norm_on(cuda, random_floats(rng, k));
      for (const bool residual : {false, true}) {
        std::vector<std::vector<float>> sums, results;
        for (const bool two_ops : {true, false}) {
          OpHooks hooks;
          if (two_ops) hooks.preferred = {"norm_linear/two_ops"};
          CudaMatrix x_on(cuda, dtype, m, k, 8, &x), residual_on(cuda, dtype, m, k, 0, &waiting);
          CudaMatrix normed(cuda, dtype, m, k, 0, nullptr), y(cuda, dtype, m, n, 0, nullptr);
          const NormLinearArgs args{
              .norm = {.x = x_on.view(),
                       .residual = residual ? residual_on.view() : TensorView{},
                       .weight = norm_on.data(),
                       .eps = kEps,
                       .out = normed.view(),
                       .residual_scale = 0.5f},
              .linear = {.x = normed.view(), .weight = &weight, .bias = nullptr, .y = y.view()}};
          OpContext context = cuda.context();
          context.hooks = &hooks;
          ASSERT_EQ(choose_kernel(context, norm_linear_kernels(), args).name,
                    two_ops   ? "norm_linear/two_ops"
                    : m <= 64 ? "norm_linear/cuda/blocks_wide"
                              : "norm_linear/cuda/blocks_tiles");
          norm_linear(context, args);
          sums.push_back(x_on.read());
          results.push_back(y.read());
        }
        EXPECT_EQ(sums[0], sums[1]);
        expect_near(results[1], results[0], 0.02);
      }
    }
  }
}

// With a gate; gate and up of two types are two launches for the same rows.
TEST(NormLinearCuda, GatedRowsOfBlocksAreNormalisedAsByTwoOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kFeatures = 1040, kK = 2304;
  const DType dtype = DType::kBF16;
  for (const DType of_up : {DType::kQ4_K, DType::kQ6_K}) {
    Rng rng(3);
    const RandomMatrix gate(rng, DType::kQ4_K, kFeatures, kK), up(rng, of_up, kFeatures, kK);
    const LinearSource sources[] = {{gate.view(), {}}, {up.view(), {}}};
    const LinearWeight weight =
        std::move(LinearWeight::pack(cuda.device(), sources, compute_of(dtype)).value());
    const CudaArray<float> norm_on(cuda, random_floats(rng, kK));
    for (const int64_t m : {12, 65, 300, 1030}) {
      SCOPED_TRACE(std::string(dtype_name(of_up)) + " M" + std::to_string(m));
      const std::vector<float> x = rounded_floats(rng, dtype, m * kK);
      std::vector<std::vector<float>> results;
      for (const bool two_ops : {true, false}) {
        OpHooks hooks;
        if (two_ops) hooks.preferred = {"norm_gated_linear/two_ops"};
        CudaMatrix x_on(cuda, dtype, m, kK, 0, &x), normed(cuda, dtype, m, kK, 0, nullptr);
        CudaMatrix gate_up(cuda, dtype, m, 2 * kFeatures, 0, nullptr);
        CudaMatrix y(cuda, dtype, m, kFeatures, 8, nullptr);
        const NormGatedLinearArgs args{.norm = {.x = x_on.view(),
                                                .residual = {},
                                                .weight = norm_on.data(),
                                                .eps = kEps,
                                                .out = normed.view()},
                                       .gated = {.x = normed.view(),
                                                 .weight = &weight,
                                                 .bias = nullptr,
                                                 .gate_up = gate_up.view(),
                                                 .y = y.view()}};
        OpContext context = cuda.context();
        context.hooks = &hooks;
        ASSERT_EQ(choose_kernel(context, norm_gated_linear_kernels(), args).name,
                  two_ops   ? "norm_gated_linear/two_ops"
                  : m <= 64 ? "norm_gated_linear/cuda/blocks_wide"
                            : "norm_gated_linear/cuda/blocks_tiles");
        norm_gated_linear(context, args);
        results.push_back(y.read());
      }
      expect_near(results[1], results[0], 0.03);
    }
  }
}

// What stands before and after a product of few rows is in its launch: as two ops do it, with a row
// that has numbers beyond F16 too.
struct FewRowsOfBlocks {
  DType type, dtype;
  int64_t m, n, k;  // n: rows of W
  bool bias, large;
};

class FewRowsFixture {
 public:
  FewRowsFixture(TestDevice& cuda, const FewRowsOfBlocks& c)
      : cuda_(cuda),
        c_(c),
        rng_(static_cast<uint64_t>(c.m + c.k)),
        values_(rng_, c.type, c.n, c.k),
        weight_(packed()),
        bias_on_(cuda, random_floats(rng_, c.n)),
        norm_on_(cuda, random_floats(rng_, c.k)),
        x_(rounded_floats(rng_, c.dtype, c.m * c.k)) {
    if (!c.large) return;
    for (int64_t i = 0; i < c.k; i += 3) x_[static_cast<size_t>((c.m - 1) * c.k + i)] *= 0x1p20f;
  }

  std::vector<float> run(bool normed, bool gated, bool fused) {
    CudaMatrix x_on(cuda_, c_.dtype, c_.m, c_.k, 8, &x_);
    CudaMatrix rows(cuda_, c_.dtype, c_.m, c_.k, 0, nullptr);
    CudaMatrix gate_up(cuda_, c_.dtype, c_.m, c_.n, 0, nullptr);
    CudaMatrix y(cuda_, c_.dtype, c_.m, gated ? c_.n / 2 : c_.n, 8, nullptr);
    const RmsNormArgs norm{.x = x_on.view(),
                           .residual = {},
                           .weight = norm_on_.data(),
                           .eps = kEps,
                           .out = rows.view()};
    const ConstTensorView x = normed ? ConstTensorView(rows.view()) : x_on.view();
    const float* bias = c_.bias ? bias_on_.data() : nullptr;
    const LinearArgs linear{.x = x, .weight = &weight_, .bias = bias, .y = y.view()};
    const GatedLinearArgs gates{
        .x = x, .weight = &weight_, .bias = bias, .gate_up = gate_up.view(), .y = y.view()};
    if (normed && gated) {
      run_named(norm_gated_linear_kernels(), NormGatedLinearArgs{norm, gates}, fused);
    } else if (normed) {
      run_named(norm_linear_kernels(), NormLinearArgs{norm, linear}, fused);
    } else {
      run_named(gated_linear_kernels(), gates, fused);
    }
    return y.read();
  }

 private:
  LinearWeight packed() {
    const LinearSource source{values_.view(), {}};
    return std::move(
        LinearWeight::pack(cuda_.device(), {&source, 1}, compute_of(c_.dtype)).value());
  }
  template <class Args>
  void run_named(const KernelSet<Args>& kernels, const Args& args, bool fused) {
    OpContext context = cuda_.context();
    int found = 0;
    for (const Kernel<Args>& kernel : kernels.all()) {
      const std::string_view suffix = fused ? "/cuda/blocks_gemv_any_size" : "/two_ops";
      if (!kernel.name.ends_with(suffix) || !takes(cuda_, kernel, args)) continue;
      ++found;
      kernel.run(context, args);
    }
    EXPECT_EQ(found, 1);
  }

  TestDevice& cuda_;
  const FewRowsOfBlocks c_;
  Rng rng_;
  const RandomMatrix values_;
  const LinearWeight weight_;
  const CudaArray<float> bias_on_, norm_on_;
  std::vector<float> x_;
};

TEST(NormLinearCuda, FewRowsOfBlocksAreNormalisedAndGatedInTheLaunch) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kQ4_Z, DType::kQ2_K}) {
    for (const FewRowsOfBlocks& c : {FewRowsOfBlocks{type, DType::kBF16, 1, 96, 4096, true, false},
                                     {type, DType::kF16, 1, 8640, 1024, false, false},
                                     {type, DType::kBF16, 1, 64, 14336, false, true},
                                     {type, DType::kBF16, 3, 4416, 2304, false, false},
                                     {type, DType::kF16, 4, 32, 4096, true, false},
                                     {type, DType::kBF16, 7, 4448, 1024, true, true}}) {
      FewRowsFixture fixture(cuda, c);
      for (const auto& [normed, gated] : {std::pair{true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(dtype_name(c.dtype)) + " M" +
                     std::to_string(c.m) + " N" + std::to_string(c.n) + " K" + std::to_string(c.k) +
                     (normed ? " normed" : "") + (gated ? " gated" : ""));
        const std::vector<float> expected = fixture.run(normed, gated, false);
        const std::vector<float> result = fixture.run(normed, gated, true);
        float most = 0;
        for (const float value : expected) most = std::max(most, std::abs(value));
        ASSERT_GT(most, 0.0f);
        for (size_t i = 0; i < result.size(); ++i) {
          ASSERT_NEAR(result[i], expected[i], 0.01f * most + 0.02f * std::abs(expected[i])) << i;
        }
      }
    }
  }
}

// The named kernel where it fits, or null.
template <class Args>
const Kernel<Args>* find(TestDevice& cuda, const KernelSet<Args>& kernels, std::string_view name,
                         const Args& args) {
  for (const Kernel<Args>& kernel : kernels.all()) {
    if (kernel.name == name && takes(cuda, kernel, args)) return &kernel;
  }
  return nullptr;
}

// What batch invariance rests on: tiles are cut otherwise for other numbers of rows.
TEST(NormLinearCuda, ARowHasTheSameBitsWhateverStandsBesideIt) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kRows = 256;
  const DType dtype = DType::kBF16;
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{960, 576}, {576, 1536}, {64, 80}}) {
    Rng rng(11);
    std::vector<float> w;
    const LinearWeight weight = random_weight(cuda, dtype, rng, n, k, &w);
    const std::vector<float> x = rounded_floats(rng, dtype, kRows * k);
    const std::vector<float> before = rounded_floats(rng, dtype, kRows * n);
    const CudaArray<float> norm_on(cuda, random_floats(rng, k));
    CudaMatrix x_on(cuda, dtype, kRows, k, 0, &x);
    std::vector<std::vector<float>> expected(3);
    for (const int64_t m :
         {kRows, int64_t{1}, int64_t{16}, int64_t{33}, int64_t{64}, int64_t{130}, kRows}) {
      SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k) + " M" + std::to_string(m));
      CudaMatrix normed(cuda, dtype, m, k, 0, nullptr), scratch(cuda, dtype, m, n, 0, nullptr);
      CudaMatrix y(cuda, dtype, m, n, 0, nullptr), half(cuda, dtype, m, n / 2, 0, nullptr);
      const std::vector<float> first(before.begin(), before.begin() + m * n);
      CudaMatrix sum(cuda, dtype, m, n, 0, &first);
      const TensorView rows = x_on.view().row_range(0, m);
      const RmsNormArgs norm{
          .x = rows, .residual = {}, .weight = norm_on.data(), .eps = kEps, .out = normed.view()};
      const NormLinearArgs plain{
          .norm = norm,
          .linear = {.x = norm.out, .weight = &weight, .bias = nullptr, .y = y.view()}};
      const NormGatedLinearArgs gated{.norm = norm,
                                      .gated = {.x = norm.out,
                                                .weight = &weight,
                                                .bias = nullptr,
                                                .gate_up = scratch.view(),
                                                .y = half.view()}};
      const LinearArgs added{.x = rows,
                             .weight = &weight,
                             .bias = nullptr,
                             .y = sum.view(),
                             .output = LinearOutput::kAccumulate};
      const auto* of_plain =
          find(cuda, norm_linear_kernels(), "norm_linear/cuda/resident_any_rows", plain);
      const auto* of_gated = find(cuda, norm_gated_linear_kernels(),
                                  "norm_gated_linear/cuda/resident_any_rows", gated);
      const auto* of_added = find(cuda, linear_kernels(), "linear/cuda/resident", added);
      if (of_plain == nullptr) GTEST_SKIP() << "not run: no resident kernel for this device";
      ASSERT_TRUE(of_gated != nullptr && of_added != nullptr);
      OpContext context = cuda.context();
      of_plain->run(context, plain);
      of_gated->run(context, gated);
      of_added->run(context, added);
      const std::vector<float> results[] = {y.read(), half.read(), sum.read()};
      for (size_t i = 0; i < 3; ++i) {
        if (expected[i].empty()) expected[i] = results[i];
        ASSERT_TRUE(std::equal(results[i].begin(), results[i].end(), expected[i].begin())) << i;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::norm_linear_cuda_test
