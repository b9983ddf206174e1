#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace headrace::bounded_queue_test {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*queue.try_pop().value(), 1);
  EXPECT_FALSE(queue.try_pop().has_value());
}

TEST(BoundedQueue, CloseWakesAWaiterAndKeepsWhatIsQueued) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.try_push(5));
  queue.close();
  EXPECT_FALSE(queue.try_push(6));
  EXPECT_EQ(queue.pop_for(std::chrono::seconds(5)).value(), 5);
  EXPECT_FALSE(queue.pop_for(std::chrono::seconds(5)).has_value());
}

TEST(BoundedQueue, HandsEachItemToOneConsumer) {
  BoundedQueue<int> queue(8);
  std::atomic<long> sum{0};
  auto consume = [&] {
    while (auto item = queue.pop_for(std::chrono::seconds(5))) sum += *item;
  };
  std::thread a(consume), b(consume);
  for (int i = 1; i <= 1000; ++i) {
    while (!queue.try_push(int(i))) std::this_thread::yield();
  }
  queue.close();
  a.join();
  b.join();
  EXPECT_EQ(sum.load(), 500500);
}

}  // namespace
}  // namespace headrace::bounded_queue_test
