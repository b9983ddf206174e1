#include "engine/kv_population.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace headrace::kv_population_test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int32_t kPages = 24;  // of 1 MiB: 12 slices
constexpr auto kLong = std::chrono::seconds(60);

// Addresses without memory behind them, and what of them has been found.
class Addresses {
 public:
  Addresses()
      : begin_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Addresses() { ::munmap(begin_, kBytes); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  std::byte* begin() const { return begin_; }
  KvPoolMemory pool() const { return {begin_, kMiB, kPages}; }
  bool resident(int64_t page) const {
    std::array<unsigned char, kMiB / 4096> there{};
    EXPECT_EQ(::mincore(begin_ + page * kMiB, kMiB, there.data()), 0);
    return std::all_of(there.begin(), there.end(), [](unsigned char p) { return (p & 1) != 0; });
  }
  int64_t resident_pages() const {
    int64_t count = 0;
    for (int64_t page = 0; page < kPages; ++page) count += resident(page) ? 1 : 0;
    return count;
  }

 private:
  static constexpr size_t kBytes = kPages * kMiB;
  std::byte* const begin_;
};

// Whether this system finds memory on request and says what it found (not Linux before 5.14, nor
// under an emulator).
bool system_takes_and_tells() {
  constexpr int kPopulateWrite = 23;
  const Addresses memory;
  if (memory.resident(0) || ::madvise(memory.begin(), kMiB, kPopulateWrite) != 0) return false;
  return memory.resident(0) && !memory.resident(kPages - 1);
}
#define SKIP_WHERE_NOT_TOLD() \
  if (!system_takes_and_tells()) GTEST_SKIP() << "this system does not find memory on request"

int64_t enough() { return std::numeric_limits<int64_t>::max(); }

StepPlan plan_with(std::vector<BlockId> pages) {
  StepPlan plan;
  Work work;
  work.new_blocks.push_back({.group = 0, .first_index = 0});
  for (const BlockId page : pages) work.new_blocks.back().blocks.push_back(page);
  plan.work.push_back(std::move(work));
  return plan;
}

template <class Condition>
bool becomes(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

TEST(KvPopulation, WhileIdleTakesAllAndChangesNothing) {
  SKIP_WHERE_NOT_TOLD();
  const Addresses memory;
  memory.begin()[5 * kMiB + 7] = std::byte{42};
  KvPopulation population(memory.pool(), enough);
  EXPECT_EQ(population.taken_bytes(), 0);
  population.idle();
  ASSERT_TRUE(becomes([&] { return population.complete(); }));
  EXPECT_EQ(memory.resident_pages(), kPages);
  EXPECT_EQ(memory.begin()[5 * kMiB + 7], std::byte{42});
}

TEST(KvPopulation, AStepHasWhatItsPagesNeedAndASliceForEachThread) {
  SKIP_WHERE_NOT_TOLD();
  const Addresses memory;
  KvPopulation population(memory.pool(), enough);
  ThreadPool threads(4);
  population.begin_step(plan_with({BlockId(5), BlockId(4)}), threads);
  EXPECT_EQ(population.taken_bytes(), 8 * kMiB);
  for (int64_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(memory.resident(page), page >= 4 && page < 12) << page;
  }
  // What is there needs nothing, and nothing more is taken ahead.
  population.begin_step(plan_with({BlockId(6)}), threads);
  EXPECT_EQ(population.taken_bytes(), 8 * kMiB);
  // At the pool's end there is less than a slice for each.
  population.begin_step(plan_with({BlockId(23)}), threads);
  EXPECT_EQ(population.taken_bytes(), 10 * kMiB);
}

// The thread asks for the free memory before each slice: there it can be held.
TEST(KvPopulation, AStepStopsItBehindTheSliceUnderWay) {
  SKIP_WHERE_NOT_TOLD();
  const Addresses memory;
  std::atomic<int> asked{0};
  std::atomic<bool> hold{true};
  KvPopulation population(memory.pool(), [&] {
    // 0: at its start.
    if (asked.fetch_add(1) == 3) hold.wait(true);
    return enough();
  });
  ThreadPool threads(1);
  population.idle();
  ASSERT_TRUE(becomes([&] { return asked == 4; }));
  population.begin_step(plan_with({}), threads);
  hold = false;
  hold.notify_all();
  // Two slices before, and the one under way.
  ASSERT_TRUE(becomes([&] { return population.taken_bytes() == 6 * kMiB; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(population.taken_bytes(), 6 * kMiB);
  population.idle();
  EXPECT_TRUE(becomes([&] { return population.complete(); }));
}

// An engine that ends between two steps does not wait for memory that nobody needs any more.
TEST(KvPopulation, EndsWithoutTheRest) {
  SKIP_WHERE_NOT_TOLD();
  const Addresses memory;
  {
    KvPopulation population(memory.pool(), [] { return std::numeric_limits<int64_t>::max(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(memory.resident_pages(), 0);
}

TEST(KvPopulation, HalfOfTheFreeMemoryIsLeftFree) {
  SKIP_WHERE_NOT_TOLD();
  const Addresses memory;
  std::atomic<bool> asked_enough{false};
  std::atomic<int64_t> free_bytes{20 * kMiB};
  KvPopulation population(memory.pool(), [&, first = true]() mutable {
    if (!std::exchange(first, false)) free_bytes -= 2 * kMiB;
    asked_enough = free_bytes < 12 * kMiB;
    return free_bytes.load();
  });
  population.idle();
  // 18, 16, 14 and 12 MiB were free before the slices taken; with 10 there would be less than half.
  ASSERT_TRUE(becomes([&] { return asked_enough.load(); }));
  EXPECT_EQ(population.taken_bytes(), 8 * kMiB);
  EXPECT_FALSE(population.complete());
}

TEST(KvPopulation, NamesTheChoices) {
  EXPECT_EQ(value_named(kKvPopulateNames, "idle"), KvPopulate::kIdle);
  EXPECT_EQ(value_named(kKvPopulateNames, "always"), std::nullopt);
  EXPECT_EQ(names_of(kKvPopulateNames), (std::vector<std::string>{"off", "idle", "start"}));
}

}  // namespace
}  // namespace headrace::kv_population_test
