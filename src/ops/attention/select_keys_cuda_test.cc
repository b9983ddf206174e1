// The keys that rows choose on a GPU, beside those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/select_keys.h"
#include "ops/attention/step_rows_cuda_fixture.h"

namespace headrace::select_keys_cuda_test {
namespace {

constexpr int32_t kUnwritten = -7, kGap = 3;  // places behind those of a row
using Places = std::vector<std::vector<int32_t>>;

struct SelectCase {
  DType dtype = DType::kBF16;  // of activations and, but for the index, the cache
  int32_t heads = 64, dim = 128, top = 64;
  StepSequences sequences;
  int32_t padding = 0;
  int32_t kv_length_max = 0;  // 0: of these sequences
};

// Numbers of which sums are exact in any order, so that scores are equal where they are near, and
// many are; or any.
enum class Numbers { kWhole, kAny };

class SelectRun {
 public:
  SelectRun(TestDevice& cuda, const SelectCase& c, Numbers numbers)
      : cuda_(cuda),
        case_(c),
        step_(cuda, {.query_heads = 16, .head_dim = 24, .kv_length_max = c.kv_length_max},
              c.sequences, c.padding),
        numbers_(numbers) {
    queries = make(rows() * c.heads * c.dim);
    weights = make(rows() * c.heads);
    kv_ = {.k_format = kv_format(c.dtype),
           .v_format = kv_format(c.dtype),
           .keys = KeyLayout::kRows,
           .v_aliases_k = true,
           .kv_heads = 1,
           .k_dim = 24,
           .v_dim = 16,
           .index_dim = c.dim};
    kv_.index_offset = k_part_bytes(kv_);
    kv_.block_stride = layer_part_bytes(kv_);
    cache_.assign(static_cast<size_t>(step_.blocks() * kv_.block_stride), std::byte{0xff});  // NaN
    kv_.base = cache_.data();
    for (const AttentionSequence& sequence : step_.sequences()) {
      for (int32_t place = 0; place < sequence.kv_length; ++place) {
        keep(sequence.row_first, place, make(c.dim));
      }
    }
  }

  int64_t rows() const { return step_.rows(); }
  const StepOnDevice& step() const { return step_; }
  void keep(int32_t row, int32_t place, const std::vector<float>& key) {
    store_index_key(kv_, step_.slot(row, place), key.data());
  }

  // Of two runs of one sequence: its key at a place, and its last rows.
  void copy_key(const SelectRun& from, int32_t place) {
    const int64_t slot = from.step_.slot(0, place);
    std::vector<float> key;
    for (int32_t d = 0; d < case_.dim; ++d) {
      key.push_back(load_number(index_head(from.kv_, slot / 16), slot % 16, d));
    }
    keep(0, place, key);
  }
  void copy_last_rows(const SelectRun& from) {
    queries.assign(from.queries.end() - std::ssize(queries), from.queries.end());
    weights.assign(from.weights.end() - std::ssize(weights), from.weights.end());
  }

  Places on_cpu() {
    TestDevice cpu = TestDevice::cpu(2);
    OpContext context = cpu.context();
    std::vector<int32_t> places = no_places();
    SelectKeysArgs args = arguments(places.data());
    args.queries = host_view(queries, rows(), int64_t{case_.heads} * case_.dim);
    args.weights = host_view(weights, rows(), case_.heads);
    args.kv = kv_;
    args.sequences = step_.sequences();
    select_keys(context, args);
    return read(places);
  }

  // By every kernel that takes it: of each the places.
  std::vector<std::pair<std::string, Places>> on_gpu() {
    const CudaArray<std::byte> cache(cuda_, cache_);
    const CudaMatrix queries_on(cuda_, case_.dtype, rows(), int64_t{case_.heads} * case_.dim, 8,
                                &queries),
        weights_on(cuda_, DType::kF32, rows(), case_.heads, 4, &weights);
    std::vector<std::pair<std::string, Places>> all;
    for (const auto& kernel : select_keys_kernels().all()) {
      const CudaArray<int32_t> places(cuda_, no_places());
      SelectKeysArgs args = arguments(places.data());
      args.queries = queries_on.view();
      args.weights = weights_on.view();
      args.kv = kv_;
      args.kv.base = cache.data();
      args.plan = &step_.plan();
      if (!kernel.supports(cuda_.device().traits(), args)) continue;
      OpContext context = cuda_.context();
      kernel.run(context, args);
      all.emplace_back(kernel.name, read(places.read()));
    }
    const bool both = case_.dim == 128 && case_.heads % 8 == 0 && case_.dtype != DType::kF32;
    EXPECT_EQ(all.size(), both ? 2u : 1u);
    return all;
  }

  double score(int32_t row, int32_t place) const {
    const int64_t slot = step_.slot(row, place);
    const KvHeadView key = index_head(kv_, slot / 16);
    double sum = 0;
    for (int32_t h = 0; h < case_.heads; ++h) {
      const int64_t head = int64_t{row} * case_.heads + h;
      double product = 0;
      for (int32_t d = 0; d < case_.dim; ++d) {
        product += double{queries[static_cast<size_t>(head * case_.dim + d)]} *
                   load_number(key, slot % 16, d);
      }
      sum += double{weights[static_cast<size_t>(head)]} * std::max(product, 0.0);
    }
    return sum;
  }

  std::vector<float> queries, weights;

 private:
  std::vector<float> make(int64_t count) {
    if (numbers_ == Numbers::kAny) return rounded_floats(rng_, case_.dtype, count);
    std::vector<float> whole;
    for (int64_t i = 0; i < count; ++i) whole.push_back(static_cast<float>(rng_.below(5)) - 2.0f);
    return whole;
  }
  std::vector<int32_t> no_places() const {
    return std::vector<int32_t>(static_cast<size_t>(rows() * stride()), kUnwritten);
  }
  int64_t stride() const { return case_.top + kGap; }
  SelectKeysArgs arguments(int32_t* places) const {
    SelectKeysArgs args;
    args.chosen = {.front = places, .stride = stride(), .top = case_.top};
    return args;
  }
  // Fails the test where more was written than a row's places.
  Places read(const std::vector<int32_t>& places) const {
    Places all;
    for (int32_t row = 0; row < step_.rows(); ++row) {
      const int32_t count = row < step_.own_rows() ? std::min(case_.top, step_.seen(row)) : 0;
      const auto first = places.begin() + row * stride();
      all.emplace_back(first, first + count);
      EXPECT_TRUE(std::all_of(first + count, first + stride(),
                              [](int32_t place) { return place == kUnwritten; }))
          << "row " << row;
    }
    return all;
  }

  TestDevice& cuda_;
  const SelectCase case_;
  const StepOnDevice step_;
  const Numbers numbers_;
  Rng rng_{7};
  KvLayerView kv_;
  std::vector<std::byte> cache_;
};

std::vector<SelectCase> cases() {
  return {
      {.top = 9, .sequences = {{1, 5}, {1, 300}, {1, 1023}}, .padding = 5},
      {.top = 16, .sequences = {{33, 33}, {7, 40}, {1, 16}, {1, 17}}},
      {.top = 64, .sequences = {{40, 777}, {1, 64}, {1, 65}}},
      {.dtype = DType::kF16, .top = 100, .sequences = {{1, 5000}, {3, 99}, {2, 102}}},
      {.heads = 32, .top = 64, .sequences = {{300, 700}, {5, 30}}},  // runs of rows
      {.dtype = DType::kF16, .heads = 8, .top = 1, .sequences = {{270, 270}, {20, 261}}},
      {.top = 2048, .sequences = {{1, 9000}, {2, 2049}, {1, 2048}}, .padding = 1},
      {.heads = 12, .dim = 16, .top = 40, .sequences = {{100, 100}, {1, 200}}},
      {.dtype = DType::kF32, .heads = 6, .dim = 20, .top = 9, .sequences = {{75, 75}, {4, 31}}},
      {.dtype = DType::kF32, .top = 64, .sequences = {{1, 700}, {20, 90}}},
  };
}

std::string name_of(const SelectCase& c) {
  return std::string(dtype_name(c.dtype)) + ", " + std::to_string(c.heads) + " heads of " +
         std::to_string(c.dim) + ", " + std::to_string(c.top) + " of sequences of rows, keys " +
         testing::PrintToString(c.sequences);
}

TEST(SelectKeysCuda, ChosenKeysAreTheCpusAndOfEqualScoresTheFirst) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const SelectCase& c : cases()) {
    SCOPED_TRACE(name_of(c));
    SelectRun run(cuda, c, Numbers::kWhole);
    const Places expected = run.on_cpu();
    for (const auto& [kernel, places] : run.on_gpu()) EXPECT_EQ(places, expected) << kernel;
    if (testing::Test::HasFailure()) return;
  }
}

// Sums that are rounded: what is chosen has no smaller score than what is not, but for rounding.
TEST(SelectKeysCuda, TheLargestScoresAreChosen) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const SelectCase& c : cases()) {
    SCOPED_TRACE(name_of(c));
    SelectRun run(cuda, c, Numbers::kAny);
    for (const auto& [kernel, places] : run.on_gpu()) {
      for (int32_t row = 0; row < run.step().own_rows(); row += 7) {
        const std::vector<int32_t>& chosen = places[static_cast<size_t>(row)];
        ASSERT_TRUE(std::ranges::is_sorted(chosen, std::less_equal<>())) << kernel << " " << row;
        double least = INFINITY, most = -INFINITY, largest = 0;
        for (int32_t place = 0; place < run.step().seen(row); ++place) {
          const double score = run.score(row, place);
          largest = std::max(largest, std::abs(score));
          double& bound = std::ranges::binary_search(chosen, place) ? least : most;
          bound = &bound == &least ? std::min(least, score) : std::max(most, score);
        }
        ASSERT_GE(least, most - 1e-5 * largest) << kernel << " row " << row;
      }
    }
  }
}

// Whole, in chunks and row by row: the same bits of scores, so that equal places follow.
TEST(SelectKeysCuda, TheChoiceDoesNotDependOnTheSteps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int32_t kKeys = 400;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    SelectCase c{.dtype = dtype, .top = 50, .sequences = {{kKeys, kKeys}}};
    SelectRun whole(cuda, c, Numbers::kAny);
    const auto expected = whole.on_gpu();
    for (const int32_t count : {1, 37}) {
      c.sequences = {{count, kKeys}};
      SelectRun last(cuda, c, Numbers::kAny);
      // The same text: keys and the last rows are those of the whole.
      for (int32_t place = 0; place < kKeys; ++place) last.copy_key(whole, place);
      last.copy_last_rows(whole);
      const auto actual = last.on_gpu();
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t k = 0; k < actual.size(); ++k) {
        const Places& all = expected[k].second;
        EXPECT_EQ(actual[k].second, Places(all.end() - count, all.end())) << actual[k].first;
      }
    }
  }
}

// Scores of which there is room for sixteen rows at a time.
TEST(SelectKeysCuda, RowsOfSeveralRoundsChooseAlike) {
  auto made = cuda_test_device(int64_t{160} << 20);
  if (!made) GTEST_SKIP() << "not run: there is no GPU";
  const SelectCase c{.top = 20, .sequences = {{70, 200}, {1, 333}}, .kv_length_max = 1 << 21};
  SelectRun run(*made, c, Numbers::kWhole);
  const Places expected = run.on_cpu();
  for (const auto& [kernel, places] : run.on_gpu()) EXPECT_EQ(places, expected) << kernel;
}

// Numbers that are none have a place in the order: nothing is read or written elsewhere, and other
// rows choose as before.
TEST(SelectKeysCuda, ScoresThatAreNoNumbersDoNoHarm) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const SelectCase c{.dtype = dtype, .top = 30, .sequences = {{20, 100}, {1, 70}}};
    SelectRun run(cuda, c, Numbers::kWhole);
    const auto before = run.on_gpu();
    std::fill_n(run.weights.begin() + 7 * c.heads, c.heads,
                std::numeric_limits<float>::quiet_NaN());
    const auto after = run.on_gpu();
    for (size_t k = 0; k < after.size(); ++k) {
      Places expected = before[k].second;
      for (int32_t i = 0; i < c.top; ++i) expected[7][static_cast<size_t>(i)] = i;  // all are equal
      EXPECT_EQ(after[k].second, expected) << after[k].first;
    }
  }
}

}  // namespace
}  // namespace headrace::select_keys_cuda_test
