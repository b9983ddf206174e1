#include "tensor/thread_pool.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace headrace::thread_pool_test {
namespace {

TEST(ThreadPool, RunCallsEveryThreadOnceAndPublishesTheirWrites) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int round = 0; round < 2000; ++round) {
      pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    }
    for (int count : calls) EXPECT_EQ(count, 2000);
  }
}

TEST(ThreadPool, ParallelForCoversEachIndexOnce) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 7, 64, 1001}) {
    std::vector<int> hits(static_cast<size_t>(count), 0);
    pool.parallel_for(count, 7, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (int hit : hits) EXPECT_EQ(hit, 1);
  }
}

TEST(ThreadPool, ParallelRowsCoversEachIndexOnce) {
  for (int threads : {1, 3, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 8, 64, 1001}) {
      std::vector<int> hits(static_cast<size_t>(count), 0);
      pool.parallel_rows(count, 7, [&](int64_t first, int64_t last) {
        EXPECT_LE(last - first, std::max<int64_t>(7, threads == 1 ? count : 7));
        for (int64_t i = first; i < last; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (int hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

// One thread takes its own share before it takes the other's.
TEST(ThreadPool, ParallelRowsBeginsWithAThreadsOwn) {
  ThreadPool pool(2);
  std::atomic<bool> go{false};
  std::mutex mutex;
  std::vector<int64_t> order;
  pool.parallel_rows(8, 1, [&](int64_t first, int64_t) {
    if (first == 4) {  // the second share's first waits for all others
      go.wait(false);
      return;
    }
    const std::lock_guard lock(mutex);
    order.push_back(first);
    if (order.size() == 7) {
      go = true;
      go.notify_all();
    }
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 5, 6, 7}));
}

TEST(ThreadPool, BoundThreadsRunWhereTheyWerePut) {
  const std::vector<int32_t> first = {CpuTopology::read().cpus.front().cpu};
  ThreadPool pool(ThreadPlacement{3, {first, first, first}, true});
  const size_t all = CpuTopology::read().cpus.size();
  std::thread caller([&] {
    {
      const BoundScope scope = pool.bind_caller_here();
      EXPECT_EQ(sched_getcpu(), first[0]);
    }
    EXPECT_EQ(CpuTopology::read().cpus.size(), all);
    pool.bind_caller();
    std::vector<int> cpus(3, -1);
    pool.run([&](int share) { cpus[static_cast<size_t>(share)] = sched_getcpu(); });
    for (const int cpu : cpus) EXPECT_EQ(cpu, first[0]);
  });
  caller.join();
}

TEST(ThreadPool, SleepsWhenIdle) {
  ThreadPool pool(2);
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  getrusage(RUSAGE_SELF, &after);
  const auto seconds = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec) + 1e-6 * static_cast<double>(u.ru_utime.tv_usec);
  };
  EXPECT_LT(seconds(after) - seconds(before), 0.02);
  pool.run([](int) {});  // and wakes again
}

}  // namespace
}  // namespace headrace::thread_pool_test
