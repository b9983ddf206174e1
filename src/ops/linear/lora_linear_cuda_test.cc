// lora_linear on a GPU against sums of doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/lora_linear.h"

namespace headrace::lora_linear_cuda_test {
namespace {

struct LoraCase {
  DType dtype = DType::kBF16;
  std::vector<int64_t> ranks = {16};  // of each slot's adapter; 0: it leaves the factor alone
  int64_t k = 64;
  std::vector<int64_t> outputs = {64};  // columns of each factor
  int64_t gap = 0;                      // columns of y between them
  int32_t rank_max = 0;                 // 0: the largest
  float x_size = 1.0f;                  // of numbers of x
  float b_size = 0.3f;
};

// Adapters in slots on the device, and as the values that these have.
class CudaAdapters {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  CudaAdapters(TestDevice& device, Rng& rng, const LoraCase& c) : case_(c) {
    view_.dtype = c.dtype;
    view_.rank_max = c.rank_max > 0
                         ? c.rank_max
                         : static_cast<int32_t>(*std::max_element(c.ranks.begin(), c.ranks.end()));
    view_.factor_count = static_cast<int32_t>(c.outputs.size());
    place();
    std::vector<std::byte> memory(static_cast<size_t>(view_.slot_bytes) * c.ranks.size());
    std::vector<LoraScale> scales;
    for (size_t slot = 0; slot < c.ranks.size(); ++slot) {
      for (size_t f = 0; f < places_.size(); ++f) {
        fill(rng, memory.data() + view_.slot_bytes * static_cast<int64_t>(slot), slot, f);
        scales.push_back({0.5f + static_cast<float>(f), lora_rank_tiles(c.ranks[slot])});
      }
    }
    memory_.emplace(device, memory);
    scales_.emplace(device, scales);
    view_.memory = memory_->data();
    view_.scales = scales_->data();
  }

  const LoraSlotsView& view() const { return view_; }
  std::span<const LoraPlace> places() const { return places_; }
  int64_t y_columns() const { return y_columns_; }

  // y [N] += what the slot adds for x [K], of hidden numbers of at most `hidden_max`; returns how
  // many were larger.
  int add(size_t slot, const float* x, float* y, double hidden_max = kNoLimit) const {
    int larger = 0;
    for (size_t f = 0; f < places_.size(); ++f) {
      const Factor& factor = factors_.at({slot, f});
      const auto ranks = static_cast<size_t>(case_.ranks[slot]), k = static_cast<size_t>(case_.k);
      std::vector<double> t(ranks);
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < k; ++i) t[r] += double{factor.a[r * k + i]} * x[i];
        t[r] *= 0.5 + static_cast<double>(f);
        larger += std::abs(t[r]) > hidden_max ? 1 : 0;
        t[r] = std::clamp(t[r], -hidden_max, hidden_max);
      }
      for (size_t n = 0; n < static_cast<size_t>(places_[f].columns); ++n) {
        double sum = 0;
        for (size_t r = 0; r < ranks; ++r) sum += t[r] * factor.b[n * ranks + r];
        float& to = y[static_cast<size_t>(places_[f].first_column) + n];
        to = static_cast<float>(to + sum);
      }
    }
    return larger;
  }

 private:
  struct Factor {
    std::vector<float> a, b;  // [R, K], [N, R]
  };

  void place() {
    for (const int64_t outputs : case_.outputs) {
      LoraPlace& place = places_.emplace_back();
      place.a = view_.slot_bytes;
      place.b = place.a + lora_a_bytes(case_.dtype, view_.rank_max, case_.k);
      place.index = static_cast<int32_t>(places_.size()) - 1;
      place.columns = outputs;
      place.first_column = y_columns_;
      view_.slot_bytes = place.b + lora_b_bytes(case_.dtype, view_.rank_max, outputs);
      y_columns_ += outputs + case_.gap;
    }
  }

  void fill(Rng& rng, std::byte* memory, size_t slot, size_t f) {
    const int64_t ranks = case_.ranks[slot], k = case_.k, n = places_[f].columns;
    Factor& factor = factors_[{slot, f}];
    factor = {rounded_floats(rng, case_.dtype, ranks * k, 0.3f),
              rounded_floats(rng, case_.dtype, n * ranks, case_.b_size)};
    for (int64_t r = 0; r < ranks; ++r) {
      pack_lora_a(case_.dtype, memory + places_[f].a, r,
                  std::span(factor.a).subspan(static_cast<size_t>(r * k), static_cast<size_t>(k)));
    }
    for (int64_t row = 0; ranks > 0 && row < n; ++row) {
      pack_lora_b(case_.dtype, memory + places_[f].b, row,
                  std::span(factor.b).subspan(static_cast<size_t>(row * ranks),
                                              static_cast<size_t>(ranks)));
    }
  }

  const LoraCase case_;
  LoraSlotsView view_;
  std::vector<LoraPlace> places_;
  int64_t y_columns_ = 0;
  std::map<std::pair<size_t, size_t>, Factor> factors_;  // by slot and factor
  std::optional<CudaArray<std::byte>> memory_;
  std::optional<CudaArray<LoraScale>> scales_;
};

// slot_of[row]: -1: none. Tasks of at most `rows_of_task`, and some of no rows.
std::vector<LoraTask> tasks_of(const std::vector<int32_t>& slot_of, int32_t rows_of_task) {
  std::map<int32_t, std::vector<int32_t>> rows;
  for (size_t row = 0; row < slot_of.size(); ++row) {
    if (slot_of[row] >= 0) rows[slot_of[row]].push_back(static_cast<int32_t>(row));
  }
  std::vector<LoraTask> tasks = {LoraTask{}};
  for (const auto& [slot, of_slot] : rows) {
    for (size_t first = 0; first < of_slot.size(); first += static_cast<size_t>(rows_of_task)) {
      LoraTask& task = tasks.emplace_back(LoraTask{.slot = slot});
      for (size_t i = first; i < of_slot.size() && task.count < rows_of_task; ++i) {
        task.rows[task.count++] = of_slot[i];
      }
    }
  }
  tasks.push_back({.slot = -1, .count = 3, .rows = {0, 1, 2}});  // of no slot: nothing
  return tasks;
}

std::vector<int32_t> mixed_slots(size_t rows, int32_t slots) {
  std::vector<int32_t> slot_of(rows);
  for (size_t row = 0; row < rows; ++row) {
    slot_of[row] = static_cast<int32_t>(row * 7 % static_cast<size_t>(slots + 1)) - 1;
  }
  return slot_of;
}

std::vector<float> lora_result(TestDevice& device, const Kernel<LoraLinearArgs>& kernel,
                               const CudaAdapters& adapters, const std::vector<LoraTask>& tasks,
                               const CudaMatrix& x, const CudaMatrix& y) {
  OpContext context = device.context();
  const CudaArray<LoraTask> on_device(device, tasks);
  const LoraLinearArgs args{.x = x.view(),
                            .groups = {},
                            .y = y.view(),
                            .tasks = on_device.span(),
                            .places = adapters.places(),
                            .slots = &adapters.view()};
  EXPECT_TRUE(kernel.supports(device.device().traits(), args)) << kernel.name;
  kernel.run(context, args);
  return y.read();
}

// Every kernel that takes the case; returns how many.
int check_lora(TestDevice& device, const LoraCase& c, const std::vector<int32_t>& slot_of) {
  Rng rng(static_cast<uint64_t>(c.k * 31 + c.outputs.front()));
  const CudaAdapters adapters(device, rng, c);
  const auto rows = static_cast<int64_t>(slot_of.size());
  const std::vector<float> x = rounded_floats(rng, c.dtype, rows * c.k);
  const std::vector<float> before = rounded_floats(rng, c.dtype, rows * adapters.y_columns());
  std::vector<float> expected = before;
  for (int64_t row = 0; row < rows; ++row) {
    if (slot_of[static_cast<size_t>(row)] < 0) continue;
    adapters.add(static_cast<size_t>(slot_of[static_cast<size_t>(row)]),
                 &x[static_cast<size_t>(row * c.k)],
                 &expected[static_cast<size_t>(row * adapters.y_columns())]);
  }
  int kernels = 0;
  for (const auto& kernel : lora_linear_kernels().all()) {
    const CudaMatrix x_rows(device, c.dtype, rows, c.k, 8, &x);
    const CudaMatrix y_rows(device, c.dtype, rows, adapters.y_columns(), 8, &before);
    const LoraLinearArgs args{.x = x_rows.view(),
                              .groups = {},
                              .y = y_rows.view(),
                              .places = adapters.places(),
                              .slots = &adapters.view()};
    if (!kernel.supports(device.device().traits(), args)) continue;
    SCOPED_TRACE(kernel.name);
    ++kernels;
    const std::vector<float> y =
        lora_result(device, kernel, adapters, tasks_of(slot_of, kLoraTaskRows), x_rows, y_rows);
    expect_near(y, expected, unit_of(c.dtype), 1e-3);
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      const auto at = static_cast<size_t>(i);
      if (slot_of[static_cast<size_t>(i / adapters.y_columns())] >= 0) continue;
      EXPECT_EQ(y[at], before[at]) << "a row without an adapter, " << i;
    }
  }
  return kernels;
}

TEST(LoraLinearCuda, RanksAndShapesAreNearDoubleSums) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rank : {1, 8, 16, 64}) {
      EXPECT_EQ(
          check_lora(device, {.dtype = dtype, .ranks = {rank, rank}, .k = 256, .outputs = {128}},
                     mixed_slots(9, 2)),
          2)
          << rank;
    }
    // Columns that are no whole tiles, of K and of y; three factors with columns between them.
    const LoraCase odd{
        .dtype = dtype, .ranks = {3, 16, 40}, .k = 1032, .outputs = {136, 8, 264}, .gap = 8};
    EXPECT_EQ(check_lora(device, odd, mixed_slots(21, 3)), 2);
    // More columns than a block of threads takes, and several blocks of outputs.
    EXPECT_EQ(
        check_lora(device, {.dtype = dtype, .ranks = {16, 16}, .k = 4096, .outputs = {1024, 512}},
                   mixed_slots(5, 2)),
        2);
  }
}

TEST(LoraLinearCuda, OddShapesAndF32TakeTheKernelOfAny) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  EXPECT_EQ(check_lora(device, {.ranks = {5}, .k = 37, .outputs = {19, 7}}, mixed_slots(6, 1)), 1);
  const LoraCase f32{.dtype = DType::kF32, .ranks = {2, 33}, .k = 96, .outputs = {48, 40}};
  EXPECT_EQ(check_lora(device, f32, mixed_slots(12, 2)), 1);
}

// F16 ends at 65,504; what is larger on its way is that, and its row finite.
TEST(LoraLinearCuda, HiddenNumbersBeyondF16AreItsLargest) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  const LoraCase c{.dtype = DType::kF16,
                   .ranks = {16, 40},
                   .k = 512,
                   .outputs = {64, 128},
                   .x_size = 1e4f,
                   .b_size = 1e-3f};
  Rng rng(17);
  const CudaAdapters adapters(device, rng, c);
  const std::vector<int32_t> slot_of = {0, 1, 0, -1, 1};
  const auto rows = static_cast<int64_t>(slot_of.size());
  const std::vector<float> x = rounded_floats(rng, c.dtype, rows * c.k, c.x_size);
  const std::vector<float> before = rounded_floats(rng, c.dtype, rows * adapters.y_columns());
  std::vector<float> expected = before;
  int larger = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (slot_of[static_cast<size_t>(row)] < 0) continue;
    larger += adapters.add(static_cast<size_t>(slot_of[static_cast<size_t>(row)]),
                           &x[static_cast<size_t>(row * c.k)],
                           &expected[static_cast<size_t>(row * adapters.y_columns())], 65504.0);
  }
  ASSERT_GT(larger, 0);
  const auto kernels = lora_linear_kernels().all();
  const auto tiles =
      std::ranges::find(kernels, "lora_linear/cuda/tiles", &Kernel<LoraLinearArgs>::name);
  ASSERT_NE(tiles, kernels.end());
  const CudaMatrix x_rows(device, c.dtype, rows, c.k, 8, &x);
  const CudaMatrix y_rows(device, c.dtype, rows, adapters.y_columns(), 8, &before);
  const std::vector<float> y =
      lora_result(device, *tiles, adapters, tasks_of(slot_of, kLoraTaskRows), x_rows, y_rows);
  // Sums of K are of numbers of 1e4.
  expect_near(y, expected, unit_of(c.dtype), 0.05);
}

TEST(LoraLinearCuda, ManyRowsOfFewAdaptersAndManyAdaptersOfFewRows) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  const LoraCase few{.ranks = {16, 32}, .k = 512, .outputs = {256}};
  EXPECT_EQ(check_lora(device, few, mixed_slots(300, 2)), 2);
  const LoraCase many{.ranks = std::vector<int64_t>(32, 16), .k = 512, .outputs = {256, 128}};
  EXPECT_EQ(check_lora(device, many, mixed_slots(64, 32)), 2);
}

// An adapter that leaves the product alone, and slots of more room than any adapter takes.
TEST(LoraLinearCuda, FactorsThatAnAdapterLeavesAlone) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  const LoraCase c{.ranks = {0, 16}, .k = 64, .outputs = {128}, .rank_max = 64};
  EXPECT_EQ(check_lora(device, c, mixed_slots(10, 2)), 2);
}

// Alone, among rows of its adapter and beside others, however many ranks these have.
TEST(LoraLinearCuda, ARowsBitsAreItsOwn) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  constexpr int64_t kRows = 70;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    Rng rng(5);
    const LoraCase c{
        .dtype = dtype, .ranks = {16, 40, 8}, .k = 2080, .outputs = {256, 128}, .gap = 8};
    const CudaAdapters adapters(device, rng, c);
    const std::vector<float> x = rounded_floats(rng, dtype, kRows * c.k);
    const std::vector<float> before = rounded_floats(rng, dtype, kRows * adapters.y_columns());
    const std::vector<int32_t> slot_of = mixed_slots(kRows, 3);
    const CudaMatrix x_rows(device, dtype, kRows, c.k, 0, &x);
    for (const auto& kernel : lora_linear_kernels().all()) {
      const CudaMatrix together(device, dtype, kRows, adapters.y_columns(), 0, &before);
      const LoraLinearArgs args{.x = x_rows.view(),
                                .groups = {},
                                .y = together.view(),
                                .places = adapters.places(),
                                .slots = &adapters.view()};
      if (!kernel.supports(device.device().traits(), args)) continue;
      SCOPED_TRACE(kernel.name);
      const std::vector<float> expected =
          lora_result(device, kernel, adapters, tasks_of(slot_of, kLoraTaskRows), x_rows, together);
      for (const int32_t rows_of_task : {1, 5, 8}) {
        const CudaMatrix apart(device, dtype, kRows, adapters.y_columns(), 0, &before);
        EXPECT_EQ(
            lora_result(device, kernel, adapters, tasks_of(slot_of, rows_of_task), x_rows, apart),
            expected)
            << rows_of_task;
      }
    }
  }
}

// A recording reads its tasks and its slots anew.
TEST(LoraLinearCuda, ARecordingRunsWithOtherAdapters) {
  HR_CUDA_DEVICE_OR_SKIP(device);
  Rng rng(6);
  const LoraCase c{.ranks = {16, 16}, .k = 256, .outputs = {128}};
  const CudaAdapters adapters(device, rng, c);
  const std::vector<float> x = rounded_floats(rng, c.dtype, 4 * c.k);
  const std::vector<float> before(static_cast<size_t>(4 * adapters.y_columns()));
  const CudaMatrix x_rows(device, c.dtype, 4, c.k, 0, &x);
  const CudaMatrix y_rows(device, c.dtype, 4, adapters.y_columns(), 0, &before);
  std::vector<LoraTask> tasks(4);
  const CudaArray<LoraTask> on_device(device, tasks);
  const LoraLinearArgs args{.x = x_rows.view(),
                            .groups = {},
                            .y = y_rows.view(),
                            .tasks = on_device.span(),
                            .places = adapters.places(),
                            .slots = &adapters.view()};
  OpContext context = device.context();
  lora_linear(context, args);  // loads the kernels; no task has rows
  EXPECT_EQ(y_rows.read(), before);
  ASSERT_TRUE(device.stream().begin_capture().ok());
  lora_linear(context, args);
  const auto graph = device.stream().end_capture();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  std::vector<float> expected = before;
  for (const int32_t slot : {0, 1}) {
    tasks[static_cast<size_t>(slot)] = {.slot = slot, .count = 2, .rows = {slot, slot + 2}};
    device.stream().copy_in(reinterpret_cast<std::byte*>(on_device.data()),
                            reinterpret_cast<const std::byte*>(tasks.data()),
                            static_cast<int64_t>(tasks.size() * sizeof(LoraTask)));
    device.stream().launch(**graph);
    // Slot 0's rows get what it adds at each launch.
    for (int32_t of = 0; of <= slot; ++of) {
      for (const int32_t row : {of, of + 2}) {
        adapters.add(static_cast<size_t>(of), &x[static_cast<size_t>(row * c.k)],
                     &expected[static_cast<size_t>(row * adapters.y_columns())]);
      }
    }
    expect_near(y_rows.read(), expected, 2 * unit_of(c.dtype), 1e-2);
  }
}

}  // namespace
}  // namespace headrace::lora_linear_cuda_test
