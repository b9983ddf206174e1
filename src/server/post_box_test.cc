#include "server/post_box.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>

namespace headrace {
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
}  // namespace headrace
