// Attention over chosen keys on a GPU, gathered by gather_keys() with the plan that it writes,
// beside plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/attention/gather_keys.h"
#include "ops/attention/latent_plan.h"
#include "ops/attention/step_rows_cuda_fixture.h"

namespace headrace::gather_keys_cuda_test {
namespace {

constexpr float kScale = 0.11f;

struct GatherCase {
  DType dtype = DType::kBF16;
  int32_t heads = 16;
  int32_t k_dim = kLatentKeyDim, v_dim = kLatentValueDim;
  int32_t top = 100;
  StepSequences sequences;
  int32_t padding = 0;
  bool batch_invariant = false;
};

KvLayerView view_of(const GatherCase& c, std::byte* base) {
  KvLayerView kv{.k_format = kv_format(c.dtype),
                 .v_format = kv_format(c.dtype),
                 .keys = KeyLayout::kRows,
                 .v_aliases_k = true,
                 .base = base,
                 .kv_heads = 1,
                 .k_dim = c.k_dim,
                 .v_dim = c.v_dim};
  kv.block_stride = k_part_bytes(kv);
  return kv;
}

// A cache full of NaN but for the keys of sequences; each row has chosen some of those it sees.
class GatherRun {
 public:
  GatherRun(TestDevice& cuda, const GatherCase& c)
      : cuda_(cuda),
        case_(c),
        step_(cuda,
              {.query_heads = c.heads, .head_dim = c.k_dim, .batch_invariant = c.batch_invariant},
              c.sequences, c.padding) {
    keys_.assign(static_cast<size_t>(step_.blocks()) * StepOnDevice::kBlockTokens *
                     static_cast<size_t>(c.k_dim),
                 std::nanf(""));
    for (const AttentionSequence& sequence : step_.sequences()) {
      for (int32_t place = 0; place < sequence.kv_length; ++place) {
        const std::vector<float> key = rounded_floats(rng_, c.dtype, c.k_dim);
        std::ranges::copy(key, keys_.begin() + step_.slot(sequence.row_first, place) * c.k_dim);
      }
    }
    q_ = rounded_floats(rng_, c.dtype, int64_t{step_.rows()} * c.heads * c.k_dim, 0.3f);
    places_.assign(static_cast<size_t>(step_.rows() * c.top), 1 << 28);
    for (int32_t row = 0; row < step_.own_rows(); ++row) choose(row);
  }

  // What the mixer does, rows by rows. Where all keys of a row are chosen, attention over the cache
  // has the same sums.
  std::vector<float> attend_gathered(const Kernel<AttentionArgs>& kernel, int32_t rows_at_a_time) {
    const CudaArray<std::byte> cache(cuda_, encode(case_.dtype, keys_));
    const CudaArray<int32_t> places(cuda_, places_);
    const int64_t width = int64_t{case_.heads} * case_.k_dim;
    const CudaMatrix q(cuda_, case_.dtype, step_.rows(), width, 0, &q_), out = no_result();
    const int32_t blocks =
        (case_.top + StepOnDevice::kBlockTokens - 1) / StepOnDevice::kBlockTokens;
    KvLayerView pages = view_of(case_, nullptr);
    const CudaArray<std::byte> gathered(
        cuda_,
        std::vector<std::byte>(static_cast<size_t>(rows_at_a_time * blocks * pages.block_stride),
                               std::byte{0xff}));
    pages.base = gathered.data();
    const CudaArray<std::byte> memory(
        cuda_, std::vector<std::byte>(static_cast<size_t>(
                   gathered_plan_bytes(step_.plan().shape, rows_at_a_time, blocks))));
    OpContext context = cuda_.context();
    for (int32_t first = 0; first < step_.rows(); first += rows_at_a_time) {
      const int32_t count = std::min(rows_at_a_time, step_.rows() - first);
      const GatheredStep step{
          .chosen = {.front = places.data(), .stride = case_.top, .top = case_.top},
          .plan = &step_.plan(),
          .row_first = first,
          .row_count = count,
          .blocks_of_row = blocks,
          .memory = memory.data()};
      gather_keys(context,
                  {.from = view_of(case_, cache.data()), .rows = {}, .to = pages, .step = &step});
      const AttentionPlan plan = gathered_plan(step);
      kernel.run(context, arguments(q.view().row_range(first, count), pages, plan,
                                    out.view().row_range(first, count)));
    }
    return out.read();
  }
  std::vector<float> attend_cache(const Kernel<AttentionArgs>& kernel) {
    const CudaArray<std::byte> cache(cuda_, encode(case_.dtype, keys_));
    const int64_t width = int64_t{case_.heads} * case_.k_dim;
    const CudaMatrix q(cuda_, case_.dtype, step_.rows(), width, 0, &q_), out = no_result();
    OpContext context = cuda_.context();
    kernel.run(context,
               arguments(q.view(), view_of(case_, cache.data()), step_.plan(), out.view()));
    return out.read();
  }

  // Those that take such keys.
  std::vector<Kernel<AttentionArgs>> kernels() {
    const TensorView row{nullptr, case_.dtype, Shape{1, int64_t{case_.heads} * case_.k_dim}};
    const TensorView out{nullptr, case_.dtype, Shape{1, int64_t{case_.heads} * case_.v_dim}};
    std::vector<Kernel<AttentionArgs>> found;
    for (const auto& kernel : attention_kernels().all()) {
      const AttentionArgs args = arguments(row, view_of(case_, nullptr), step_.plan(), out);
      if (kernel.supports(cuda_.device().traits(), args)) found.push_back(kernel);
    }
    return found;
  }

  std::vector<float> expected() const {
    std::vector<float> out(
        static_cast<size_t>(step_.rows()) * static_cast<size_t>(case_.heads * case_.v_dim), 0.0f);
    for (int32_t row = 0; row < step_.own_rows(); ++row) {
      for (int32_t head = 0; head < case_.heads; ++head) {
        const int64_t at = int64_t{row} * case_.heads + head;
        attend(row, &q_[static_cast<size_t>(at * case_.k_dim)],
               &out[static_cast<size_t>(at * case_.v_dim)]);
      }
    }
    return out;
  }

 private:
  // Places in order: all where there are few.
  void choose(int32_t row) {
    std::vector<int32_t> seen(static_cast<size_t>(step_.seen(row)));
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = static_cast<int32_t>(i);
    const auto count = static_cast<size_t>(count_of(row));
    for (size_t i = 0; i < count; ++i) std::swap(seen[i], seen[i + rng_.below(seen.size() - i)]);
    seen.resize(count);
    std::ranges::sort(seen);
    std::ranges::copy(seen, places_.begin() + int64_t{row} * case_.top);
  }
  int32_t count_of(int32_t row) const { return std::min(case_.top, step_.seen(row)); }
  CudaMatrix no_result() const {
    return {cuda_, case_.dtype, step_.rows(), int64_t{case_.heads} * case_.v_dim, 8, nullptr};
  }
  static AttentionArgs arguments(const TensorView& q, const KvLayerView& kv,
                                 const AttentionPlan& plan, const TensorView& out) {
    return {.q = q, .kv = kv, .sequences = {}, .scale = kScale, .plan = &plan, .out = out};
  }

  void attend(int32_t row, const float* q, float* out) const {
    const auto key = [&](int32_t i) {
      const int32_t place = places_[static_cast<size_t>(row * case_.top + i)];
      return &keys_[static_cast<size_t>(step_.slot(row, place) * case_.k_dim)];
    };
    std::vector<double> scores, sums(static_cast<size_t>(case_.v_dim));
    double largest = -INFINITY, total = 0;
    for (int32_t i = 0; i < count_of(row); ++i) {
      double sum = 0;
      for (int32_t d = 0; d < case_.k_dim; ++d) sum += double{q[d]} * key(i)[d];
      scores.push_back(sum * kScale);
      largest = std::max(largest, scores.back());
    }
    for (int32_t i = 0; i < count_of(row); ++i) {
      const double weight = std::exp(scores[static_cast<size_t>(i)] - largest);
      total += weight;
      for (size_t d = 0; d < sums.size(); ++d) sums[d] += weight * key(i)[d];
    }
    for (size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<float>(sums[d] / total);
  }

  TestDevice& cuda_;
  const GatherCase case_;
  const StepOnDevice step_;
  Rng rng_{7};
  std::vector<float> keys_, q_;
  std::vector<int32_t> places_;
};

TEST(GatherKeysCuda, AttentionOfWhatIsGatheredIsThePlainLoops) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const std::vector<GatherCase> cases = {
      {.sequences = {{1, 40}, {1, 17}, {1, 700}}, .padding = 5},
      {.sequences = {{33, 33}, {5, 190}, {1, 100}, {1, 101}}},
      {.heads = 128, .top = 640, .sequences = {{1, 2000}, {2, 31}, {1, 640}}},
      {.heads = 4, .top = 16, .sequences = {{9, 9}, {1, 50}, {6, 75}}, .padding = 70},
      {.heads = 64, .top = 2048, .sequences = {{1, 3000}}},
      {.heads = 20, .top = 65, .sequences = {{130, 300}}},
      {.heads = 128, .top = 300, .sequences = {{1, 400}, {3, 900}}, .batch_invariant = true},
      {.sequences = std::vector<std::pair<int32_t, int32_t>>(150, {1, 170})},
      {.dtype = DType::kF16, .top = 1000, .sequences = {{1, 1300}, {7, 20}}, .padding = 2},
      {.dtype = DType::kF32, .sequences = {{1, 140}, {7, 20}}},
      {.dtype = DType::kF32,
       .heads = 3,
       .k_dim = 24,
       .v_dim = 16,
       .top = 7,
       .sequences = {{5, 40}}},
      {.heads = 4, .k_dim = 20, .v_dim = 12, .top = 17, .sequences = {{1, 40}}, .padding = 3}};
  for (const GatherCase& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << dtype_name(c.dtype) << " " << c.heads << " heads of " << c.k_dim << ", "
                 << c.top << " of sequences of rows, keys " << testing::PrintToString(c.sequences));
    GatherRun run(cuda, c);
    const std::vector<float> expected = run.expected();
    for (const auto& kernel : run.kernels()) {
      SCOPED_TRACE(std::string(kernel.name));
      expect_near(run.attend_gathered(kernel, kGatheredRowsMax), expected, 4 * unit_of(c.dtype),
                  2 * unit_of(c.dtype));
    }
    if (testing::Test::HasFailure()) return;
  }
}

// A row that sees no more than it may choose has the bits that it has of the cache, where rows do
// not depend on their steps; and any row those of other rows beside it.
TEST(GatherKeysCuda, OfAllKeysARowHasTheBitsOfTheCache) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int32_t heads : {4, 16, 128}) {
    GatherCase c{.heads = heads,
                 .top = 400,
                 .sequences = {{70, 70}, {1, 399}, {20, 300}},
                 .batch_invariant = true};
    GatherRun run(cuda, c);
    for (const auto& kernel : run.kernels()) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << kernel.name);
      const std::vector<float> expected = run.attend_cache(kernel);
      EXPECT_EQ(run.attend_gathered(kernel, kGatheredRowsMax), expected);
      EXPECT_EQ(run.attend_gathered(kernel, 5), expected);
    }
  }
}

}  // namespace
}  // namespace headrace::gather_keys_cuda_test
