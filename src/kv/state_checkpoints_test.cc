#include "kv/state_checkpoints.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

class StateCheckpointsTest : public testing::Test {
 protected:
  // The unit of two tokens behind `parent`.
  int32_t unit(int32_t parent, TokenId first) {
    const std::vector<TokenId> tokens = {first, first};
    return tree_.add_child(parent, tokens, tree_.hash_of(tree_.at(parent).hash, tokens));
  }
  CheckpointId saved_behind(int32_t node) {
    const CheckpointId checkpoint = states_.take().value();
    states_.attach(checkpoint, node);
    return checkpoint;
  }

  PrefixTree tree_{2, 16, ~uint64_t{0}};
  StateCheckpoints states_{tree_, 2};
  const int32_t root_ = tree_.make_root({});
};

TEST_F(StateCheckpointsTest, TheOneThatWasUsedLeastLatelyIsTaken) {
  const int32_t a = unit(root_, 1), b = unit(root_, 2), c = unit(root_, 3);
  const CheckpointId of_a = saved_behind(a), of_b = saved_behind(b);
  EXPECT_EQ(states_.of(a), of_a);
  states_.note_use(a);
  EXPECT_EQ(saved_behind(c), of_b);
  EXPECT_EQ(states_.of(b), std::nullopt);
  EXPECT_EQ(states_.evictions(), 1u);
  tree_.at(a).pinned = true;
  states_.note_use(c);
  EXPECT_EQ(states_.take(), of_b);  // c's, for a is pinned
  EXPECT_EQ(states_.attached_count(), 1);
  EXPECT_TRUE(states_.check_invariants(1).ok());
  EXPECT_FALSE(states_.check_invariants(0).ok());
}

TEST_F(StateCheckpointsTest, WhatStepsSaveInIsNotTaken) {
  const CheckpointId first = states_.take().value(), second = states_.take().value();
  EXPECT_NE(first, second);
  EXPECT_EQ(states_.take(), std::nullopt);
  states_.give_back(first);
  EXPECT_EQ(states_.take(), first);
}

// A unit that takes its place in the tree has none of its.
TEST_F(StateCheckpointsTest, AUnitThatLeftTheTreeHasNone) {
  const int32_t a = unit(root_, 1);
  const CheckpointId of_a = saved_behind(a);
  tree_.remove(a);
  const int32_t b = unit(root_, 2);
  ASSERT_EQ(b, a);
  EXPECT_EQ(states_.of(b), std::nullopt);
  EXPECT_EQ(states_.take(), of_a);
  EXPECT_EQ(states_.evictions(), 0u);
  states_.attach(of_a, b);
  EXPECT_EQ(states_.of(b), of_a);
}

// A state has the same bits whoever saved it.
TEST_F(StateCheckpointsTest, AUnitKeepsTheOneThatItHas) {
  const int32_t a = unit(root_, 1);
  const CheckpointId of_a = saved_behind(a), again = states_.take().value();
  EXPECT_FALSE(states_.attach(again, a));
  EXPECT_EQ(states_.of(a), of_a);
  EXPECT_EQ(states_.take(), again);
}

TEST_F(StateCheckpointsTest, OnlyWhatWasAttachedThenIsDropped) {
  const int32_t a = unit(root_, 1);
  const AttachedCheckpoint first = states_.attach(states_.take().value(), a).value();
  states_.drop(first);
  EXPECT_EQ(states_.of(a), std::nullopt);
  const AttachedCheckpoint second = states_.attach(states_.take().value(), a).value();
  ASSERT_EQ(second.checkpoint, first.checkpoint);
  states_.drop(first);
  EXPECT_EQ(states_.of(a), second.checkpoint);
  tree_.at(a).pinned = true;
  states_.drop(second);
  EXPECT_EQ(states_.of(a), second.checkpoint);
}

}  // namespace
}  // namespace headrace
