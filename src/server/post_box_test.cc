#include "server/post_box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace headrace::post_box_test {
namespace {

TEST(PostBox, ABunchOfTasksIsOneWakeUp) {
  std::vector<PostBox::Task> later;
  PostBox box([&](PostBox::Task task) { later.push_back(std::move(task)); });
  std::vector<int> done;
  for (int i = 0; i < 5; ++i) box.put([&, i] { done.push_back(i); });
  EXPECT_EQ(later.size(), 1u);
  EXPECT_TRUE(done.empty());
  later[0]();
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4}));
  box.put([&] { box.put([&] { done.push_back(6); }); });  // what a task puts comes later
  ASSERT_EQ(later.size(), 2u);
  later[1]();
  ASSERT_EQ(later.size(), 3u);
  later[2]();
  EXPECT_EQ(done.back(), 6);
}

TEST(PostBox, TasksAreSharedByThreads) {
  std::vector<PostBox::Task> later;
  PostBox box([&](PostBox::Task task) { later.push_back(std::move(task)); });
  std::vector<size_t> done;
  size_t put = 0;
  for (; put < 2 * PostBox::kBunch + 1; ++put) box.put([&, put] { done.push_back(put); });
  ASSERT_EQ(later.size(), 1u);
  // Who takes a bunch has first asked another thread to take the next.
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(later.size(), i + 1);
    const PostBox::Task task = later[i];
    task();
    EXPECT_EQ(done.size(), std::min(put, (i + 1) * PostBox::kBunch));
  }
  EXPECT_EQ(later.size(), 3u);
  for (size_t i = 0; i < put; ++i) EXPECT_EQ(done[i], i);
  box.put([&] { done.push_back(0); });
  EXPECT_EQ(later.size(), 4u);
}

TEST(PostBox, EveryTaskRunsOnceWhateverTheThreads) {
  constexpr int kTasks = 20'000;
  std::vector<std::atomic<int>> runs(2 * kTasks);
  BoundedQueue<PostBox::Task> later(4 * kTasks);
  PostBox box([&](PostBox::Task task) { later.try_push(std::move(task)); });
  std::atomic<int> left{2 * kTasks};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (left > 0) {
        if (const auto task = later.pop_for(std::chrono::milliseconds(1))) (*task)();
      }
    });
    threads.emplace_back([&, i] {
      for (int task = i * kTasks; task < (i + 1) * kTasks; ++task) {
        box.put([&, task] {
          ++runs[static_cast<size_t>(task)];
          --left;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1);
}

TEST(PostBox, ATaskThatThrowsDoesNotTakeTheOthersWithIt) {
  std::vector<PostBox::Task> later;
  PostBox box([&](PostBox::Task task) { later.push_back(std::move(task)); });
  bool done = false;
  box.put([] { throw std::bad_alloc(); });
  box.put([&] { done = true; });
  later[0]();
  EXPECT_TRUE(done);
}

TEST(PostBox, WhatIsDroppedIsDestroyed) {
  PostBox box([](PostBox::Task) {});
  auto held = std::make_shared<int>(1);
  box.put([held] {});
  EXPECT_EQ(held.use_count(), 2);
  box.clear();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(PostBox, WithoutOthersTasksRunWhereTheyArePut) {
  PostBox box;
  bool done = false;
  box.put([&] { done = true; });
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace headrace::post_box_test
