// grouped_linear on CUDA: every kernel against the plain loops of the CPU, over lists as uneven as
// they come; and a router's products, of F32 weights and 16-bit rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/packing/random_matrix.h"

namespace headrace::grouped_linear_cuda_test {
namespace {

struct GroupedCase {
  std::vector<int32_t> counts;  // rows of each expert
  int64_t n, k;
  std::optional<Activation> gate = {};
  bool gathers = true;
  bool bias = false;
  std::optional<DType> block = {};  // type of W, where that is not x's

  std::string name(DType dtype) const {
    return std::string(dtype_name(dtype)) + " " + testing::PrintToString(counts) + " N" +
           std::to_string(n) + " K" + std::to_string(k) + (gate ? " gated" : "") +
           (gathers ? " gathered" : "") + (block ? " of " + std::string(dtype_name(*block)) : "");
  }
  int64_t listed() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  int64_t outputs() const { return gate ? n / 2 : n; }
};

LinearCompute grouped_compute_of(DType dtype) {
  if (dtype == DType::kF32) return LinearCompute::kFloat32;
  return dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
}

LinearWeight packed_for(Device& device, std::vector<float>& values, int64_t k,
                        LinearCompute compute) {
  const LinearSource source{host_view(values, std::ssize(values) / k, k), {}};
  return std::move(LinearWeight::pack(device, {&source, 1}, compute).value());
}

template <class Args>
bool runs_somewhere(TestDevice& cuda, const Kernel<Args>& kernel, const Args& args) {
  DeviceTraits invariant = cuda.device().traits();
  invariant.batch_invariant = true;
  return kernel.supports(cuda.device().traits(), args) || kernel.supports(invariant, args);
}

// What a case multiplies, and what the plain loops say.
class GroupedRun {
 public:
  GroupedRun(const GroupedCase& c, DType dtype) : case_(c), dtype_(dtype), rng_(11) {
    const auto experts = std::ssize(c.counts);
    starts_.push_back(0);
    for (const int32_t count : c.counts) starts_.push_back(starts_.back() + count);
    rows_of_x_ = c.gathers ? std::max<int64_t>(c.listed() / 2, 1) : c.listed();
    for (int64_t i = 0; c.gathers && i < c.listed(); ++i) {
      rows_.push_back(static_cast<int32_t>(rng_.below(static_cast<uint64_t>(rows_of_x_))));
    }
    if (c.block) {
      blocks_.emplace(rng_, *c.block, experts * c.n, c.k);
    } else {
      weights_ = rounded_floats(rng_, dtype, experts * c.n * c.k, 0.5f);
    }
    x_ = rounded_floats(rng_, dtype, rows_of_x_ * c.k);
    if (c.bias) bias_ = random_floats(rng_, experts * c.n, 3.0f);
    expected_.resize(static_cast<size_t>(c.listed() * c.outputs()));
    TestDevice cpu = TestDevice::cpu(2);
    OpContext context = cpu.context();
    const LinearWeight weight = weight_on(cpu.device(), LinearCompute::kFloat32);
    grouped_linear(context, {.x = host_view(x_, rows_of_x_, c.k),
                             .weight = &weight,
                             .starts = starts_,
                             .rows = rows_,
                             .bias = bias_.empty() ? nullptr : bias_.data(),
                             .gate = c.gate,
                             .y = host_view(expected_, c.listed(), c.outputs())});
  }

  void expect_of_every_kernel(TestDevice& cuda) {
    const LinearWeight weight = weight_on(cuda.device(), grouped_compute_of(dtype_));
    const CudaArray<int32_t> starts(cuda, starts_), rows(cuda, rows_.empty() ? starts_ : rows_);
    const CudaArray<float> bias(cuda, bias_.empty() ? std::vector<float>(1) : bias_);
    const CudaMatrix x(cuda, dtype_, rows_of_x_, case_.k, 8, &x_);
    int ran = 0;
    for (const auto& kernel : grouped_linear_kernels().all()) {
      const CudaMatrix y(cuda, dtype_, case_.listed(), case_.outputs(), 8, nullptr);
      const GroupedLinearArgs args{.x = x.view(),
                                   .weight = &weight,
                                   .starts = starts.span(),
                                   .rows = rows_.empty() ? std::span<int32_t>() : rows.span(),
                                   .bias = bias_.empty() ? nullptr : bias.data(),
                                   .gate = case_.gate,
                                   .y = y.view()};
      if (!runs_somewhere(cuda, kernel, args)) continue;
      SCOPED_TRACE(std::string(kernel.name));
      OpContext context = cuda.context();
      kernel.run(context, args);
      // What is unpacked is rounded once more, to x's type; some types have weights beyond 1.
      const bool rounds = case_.block && kernel.name.ends_with("unpacked");
      expect_near(y.read(), expected_, 2 * unit_of(dtype_),
                  tolerance() + (rounds ? 4 * unit_of(dtype_) * sums() : 0));
      ++ran;
    }
    EXPECT_GE(ran, 1);
  }

 private:
  LinearWeight weight_on(Device& device, LinearCompute compute) {
    if (!case_.block) return packed_for(device, weights_, case_.k, compute);
    const LinearSource source{blocks_->view(), {}};
    return std::move(LinearWeight::pack(device, {&source, 1}, compute).value());
  }

  // Of sums of K products of deviation 0.5, or of what they are gated to: a product of two.
  double sums() const {
    const double sums = 0.5 * std::sqrt(static_cast<double>(case_.k));
    return sums * (case_.gate ? sums : 1.0);
  }
  double tolerance() const { return 8e-6 * sums() + 1e-5; }

  const GroupedCase& case_;
  const DType dtype_;
  Rng rng_;
  std::vector<int32_t> starts_, rows_;
  int64_t rows_of_x_ = 0;
  std::vector<float> weights_, x_, bias_, expected_;
  std::optional<RandomMatrix> blocks_;
};

std::vector<GroupedCase> grouped_cases() {
  std::vector<GroupedCase> cases;
  const std::vector<std::vector<int32_t>> lists = {
      {1},           {0, 1, 0},         {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 70, 0},
      {300, 0, 1},   {8, 9, 0, 63, 64}, {65, 127, 128, 129, 3},   {256, 257, 384, 385},
      {0, 0, 0, 600}};
  for (const auto& list : lists) {
    for (const bool gathers : {true, false}) {
      cases.push_back({list, 128, 192, {}, gathers});
      cases.push_back({list, 304, 128, Activation::kSilu, gathers});
      cases.push_back({list, 272, 64, {}, gathers});
      cases.push_back({list, 256, 832, Activation::kGeluTanh, gathers});
    }
  }
  // Biases, of tiles that end behind an expert's rows too; gates that are clamped.
  for (const auto& list : lists) {
    cases.push_back({list, 272, 64, {}, true, true});
    cases.push_back({list, 304, 128, Activation::kClampedSwish, true, true});
    cases.push_back({list, 256, 832, Activation::kClampedSwish, false, false});
  }
  // What tiles do not take: odd K, odd N, erf.
  cases.push_back({{3, 0, 5}, 20, 24, Activation::kSilu});
  cases.push_back({{3, 0, 5}, 18, 33});
  cases.push_back({{3, 0, 5}, 18, 33, {}, true, true});
  cases.push_back({{3, 0, 5}, 20, 24, Activation::kClampedSwish, true, true});
  cases.push_back({{3, 0, 5}, 128, 64, Activation::kGeluErf});
  // Experts in every lane of the list, and more.
  cases.push_back({std::vector<int32_t>(130, 2), 64, 64});
  cases.push_back({std::vector<int32_t>(1024, 1), 16, 64, Activation::kSilu});
  return cases;
}

TEST(GroupedLinearCuda, EveryKernelIsThePlainLoops) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const GroupedCase& c : grouped_cases()) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      SCOPED_TRACE(c.name(dtype));
      GroupedRun(c, dtype).expect_of_every_kernel(cuda);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Every block type; lists of no, one and many tiles of 8; K of fewer steps than warps and of more;
// groups that a thread block has some of.
TEST(GroupedLinearCuda, PackedBlocksAreThePlainLoops) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const std::vector<std::vector<int32_t>> lists = {
      {1}, {0, 1, 0}, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 70, 0}, {8, 9, 0, 63, 64}, {0, 200}};
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    for (const auto& list : lists) {
      for (const GroupedCase& c : {
               GroupedCase{list, 96, whole_blocks(type, 1), {}, true, false, type},
               GroupedCase{list, 64, whole_blocks(type, 800), Activation::kSilu, true, true, type},
               GroupedCase{list, 608, whole_blocks(type, 1536), Activation::kClampedSwish, false,
                           true, type},
               GroupedCase{list, 272, whole_blocks(type, 608), {}, false, true, type},
           }) {
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
          SCOPED_TRACE(c.name(dtype));
          GroupedRun(c, dtype).expect_of_every_kernel(cuda);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
  // Experts in every lane of the list, and more.
  const GroupedCase many{std::vector<int32_t>(130, 2), 64, 256, {}, true, false, DType::kQ4_K};
  GroupedRun(many, DType::kBF16).expect_of_every_kernel(cuda);
}

// The same launch with other lists, as recorded steps replay it, and steps of many tiles a block.
TEST(GroupedLinearCuda, ManyTilesABlock) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  std::vector<int32_t> counts;
  Rng rng(2);
  for (int e = 0; e < 60; ++e) counts.push_back(static_cast<int32_t>(rng.below(140)));
  for (const bool gated : {false, true}) {
    const GroupedCase c{counts, 1536, 512, gated ? std::optional(Activation::kSilu) : std::nullopt};
    SCOPED_TRACE(c.name(DType::kBF16));
    GroupedRun(c, DType::kBF16).expect_of_every_kernel(cuda);
  }
}

// Of a list that more experts share, each part has the bits that the whole has.
TEST(GroupedLinearCuda, PartsOfAListAreTheWhole) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 256, kK = 128;
  const std::vector<int32_t> starts = {0, 5, 70, 70, 300, 301};
  constexpr int64_t kExperts = 5, kFirst = 2;  // of the second part
  const int64_t listed = starts.back();
  Rng rng(6);
  std::vector<float> weights = rounded_floats(rng, DType::kBF16, kExperts * kN * kK);
  const std::vector<float> x = rounded_floats(rng, DType::kBF16, listed * kK);
  std::vector<float> second(weights.begin() + kFirst * kN * kK, weights.end());
  const LinearWeight all = packed_for(cuda.device(), weights, kK, LinearCompute::kFast);
  weights.resize(kFirst * kN * kK);
  const LinearWeight first_part = packed_for(cuda.device(), weights, kK, LinearCompute::kFast);
  const LinearWeight second_part = packed_for(cuda.device(), second, kK, LinearCompute::kFast);
  const CudaArray<int32_t> starts_on(cuda, starts);
  const CudaMatrix rows(cuda, DType::kBF16, listed, kK, 0, &x);
  for (const auto& kernel : grouped_linear_kernels().all()) {
    SCOPED_TRACE(std::string(kernel.name));
    const auto run = [&](const LinearWeight& weight, size_t from, size_t count,
                         const CudaMatrix& y) {
      const GroupedLinearArgs args{.x = rows.view(),
                                   .weight = &weight,
                                   .starts = starts_on.span().subspan(from, count + 1),
                                   .rows = {},
                                   .gate = Activation::kSilu,
                                   .y = y.view(),
                                   .listed_experts = kExperts};
      if (!runs_somewhere(cuda, kernel, args)) return false;
      OpContext context = cuda.context();
      kernel.run(context, args);
      return true;
    };
    const CudaMatrix whole(cuda, DType::kBF16, listed, kN / 2, 0, nullptr);
    const CudaMatrix in_parts(cuda, DType::kBF16, listed, kN / 2, 0, nullptr);
    if (!run(all, 0, kExperts, whole)) continue;
    ASSERT_TRUE(run(first_part, 0, kFirst, in_parts));
    ASSERT_TRUE(run(second_part, kFirst, kExperts - kFirst, in_parts));
    EXPECT_EQ(in_parts.read(), whole.read());
  }
}

// A row of NaN is its own.
TEST(GroupedLinearCuda, NanStaysInItsRow) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 256, kK = 128, kRows = 40;
  Rng rng(3);
  std::vector<float> weights = rounded_floats(rng, DType::kBF16, 2 * kN * kK);
  std::vector<float> x = rounded_floats(rng, DType::kBF16, kRows * kK);
  const LinearWeight weight = packed_for(cuda.device(), weights, kK, LinearCompute::kFast);
  const CudaArray<int32_t> starts(cuda, {0, 30, 40});
  for (const auto& kernel : grouped_linear_kernels().all()) {
    std::vector<std::vector<float>> results;
    for (const bool faulty : {false, true}) {
      std::vector<float> values = x;
      if (faulty) values[7 * kK + 5] = std::nanf("");
      const CudaMatrix rows(cuda, DType::kBF16, kRows, kK, 0, &values);
      const CudaMatrix y(cuda, DType::kBF16, kRows, kN, 0, nullptr);
      const GroupedLinearArgs args{.x = rows.view(),
                                   .weight = &weight,
                                   .starts = starts.span(),
                                   .rows = {},
                                   .gate = std::nullopt,
                                   .y = y.view()};
      if (!runs_somewhere(cuda, kernel, args)) break;
      OpContext context = cuda.context();
      kernel.run(context, args);
      results.push_back(y.read());
    }
    if (results.empty()) continue;
    SCOPED_TRACE(std::string(kernel.name));
    for (size_t i = 0; i < results[0].size(); ++i) {
      if (i / kN == 7) {
        EXPECT_TRUE(std::isnan(results[1][i]));
      } else {
        ASSERT_EQ(results[0][i], results[1][i]) << "row " << i / kN;
      }
    }
  }
}

// The bits of a row do not depend on how many rows its expert has, nor on where it stands.
TEST(GroupedLinearCuda, ARowsBitsAreItsOwn) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kN = 384, kK = 256, kRows = 200;
  Rng rng(4);
  std::vector<float> weights = rounded_floats(rng, DType::kBF16, kN * kK);
  const std::vector<float> values = rounded_floats(rng, DType::kBF16, kRows * kK);
  const LinearWeight weight = packed_for(cuda.device(), weights, kK, LinearCompute::kFast);
  const CudaMatrix x(cuda, DType::kBF16, kRows, kK, 0, &values);
  for (const auto& kernel : grouped_linear_kernels().all()) {
    SCOPED_TRACE(std::string(kernel.name));
    std::vector<float> together;
    for (const int32_t count : {200, 1, 65}) {
      std::vector<int32_t> listed(static_cast<size_t>(count));
      for (int32_t i = 0; i < count; ++i) listed[static_cast<size_t>(i)] = (i * 37 + 5) % kRows;
      if (count == kRows) std::iota(listed.begin(), listed.end(), 0);
      const CudaArray<int32_t> rows(cuda, listed), starts(cuda, {0, count});
      const CudaMatrix y(cuda, DType::kBF16, count, kN, 0, nullptr);
      const GroupedLinearArgs args{.x = x.view(),
                                   .weight = &weight,
                                   .starts = starts.span(),
                                   .rows = rows.span(),
                                   .gate = std::nullopt,
                                   .y = y.view()};
      if (!runs_somewhere(cuda, kernel, args)) break;
      OpContext context = cuda.context();
      kernel.run(context, args);
      const std::vector<float> result = y.read();
      if (count == kRows) together = result;
      for (size_t i = 0; i < listed.size(); ++i) {
        ASSERT_TRUE(same_bits(&result[i * kN], &together[static_cast<size_t>(listed[i]) * kN], kN))
            << "row " << listed[i] << " of " << count;
      }
    }
  }
}

// A router's product: F32 weights, rows of 16 bits.
void expect_exact(TestDevice& cuda, DType dtype, int64_t m, int64_t n, int64_t k) {
  Rng rng(static_cast<uint64_t>(k + n));
  std::vector<float> w = random_floats(rng, n * k);
  const std::vector<float> x = rounded_floats(rng, dtype, m * k);
  std::vector<float> expected;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t r = 0; r < n; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < k; ++c) {
        sum += double{x[static_cast<size_t>(row * k + c)]} * w[static_cast<size_t>(r * k + c)];
      }
      expected.push_back(static_cast<float>(sum));
    }
  }
  const LinearWeight weight = packed_for(cuda.device(), w, k, LinearCompute::kFloat32);
  const CudaMatrix rows(cuda, dtype, m, k, 8, &x);
  int ran = 0;
  for (const auto& kernel : linear_kernels().all()) {
    const CudaMatrix y(cuda, DType::kF32, m, n, 3, nullptr);
    const LinearArgs args{.x = rows.view(), .weight = &weight, .bias = nullptr, .y = y.view()};
    if (!runs_somewhere(cuda, kernel, args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    // Tensor cores cut off sums where f32 units round them.
    expect_near(y.read(), expected, 1e-5, 1e-5 * std::sqrt(static_cast<double>(k)));
    ++ran;
  }
  EXPECT_GE(ran, 1);
}

TEST(ExactLinearCuda, IsThePlainSum) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t m : {1, 3, 4, 7, 64, 700}) {
      for (const int64_t n : {4, 65, 128}) {
        for (const int64_t k : {20, 33, 64, 576, 2048, 3072}) {
          const std::string shape = Shape{m, n, k}.to_string();
          SCOPED_TRACE(shape + " " + std::string(dtype_name(dtype)));
          expect_exact(cuda, dtype, m, n, k);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::grouped_linear_cuda_test
