#include "kv/state_checkpoints.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::state_checkpoints_test {
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
  const AttachedCheckpoint first = states_.attach(states_.take_for_answer({}).value(), a).value();
  states_.drop(first);
  EXPECT_EQ(states_.of(a), std::nullopt);
  const AttachedCheckpoint second = states_.attach(states_.take_for_answer({}).value(), a).value();
  ASSERT_EQ(second.checkpoint, first.checkpoint);
  states_.drop(first);
  EXPECT_EQ(states_.of(a), second.checkpoint);
  tree_.at(a).pinned = true;
  states_.drop(second);
  EXPECT_EQ(states_.of(a), second.checkpoint);
}

// They go before a prompt's, and take none.
TEST_F(StateCheckpointsTest, OfTwoAnswersTakeWhatIsFree) {
  const int32_t a = unit(root_, 1), b = unit(root_, 2);
  const CheckpointId of_a = saved_behind(a);
  const CheckpointId first = states_.take_for_answer({}).value();
  EXPECT_EQ(states_.take_for_answer({}), std::nullopt);
  const AttachedCheckpoint own = states_.attach(first, b).value();
  states_.note_use(b);
  EXPECT_EQ(states_.take_for_answer(own), first);
  EXPECT_EQ(states_.evictions(), 0u);
  states_.attach(first, b);
  EXPECT_EQ(states_.take_for_answer({}), first);  // another answer's
  EXPECT_EQ(states_.evictions(), 1u);
  states_.attach(first, b);
  EXPECT_EQ(states_.take(), first);  // a is used less lately
  EXPECT_EQ(states_.of(a), of_a);
}

TEST_F(StateCheckpointsTest, AnAnswersIsAPromptsWhenAPromptSavesIt) {
  const int32_t a = unit(root_, 1);
  const AttachedCheckpoint own = states_.attach(states_.take_for_answer({}).value(), a).value();
  EXPECT_FALSE(states_.attach(states_.take().value(), a));
  states_.drop(own);
  EXPECT_EQ(states_.of(a), own.checkpoint);
}

// A quarter of them is the answers': so many prompts' they take, those used least lately, none that
// is pinned.
TEST_F(StateCheckpointsTest, AnswersHaveTheirShare) {
  StateCheckpoints states(tree_, 8);
  std::vector<int32_t> units;
  for (TokenId token = 1; token <= 10; ++token) units.push_back(unit(root_, token));
  std::vector<CheckpointId> of_prompts;
  for (size_t i = 0; i < 8; ++i) {
    of_prompts.push_back(states.take().value());
    states.attach(of_prompts.back(), units[i]);
  }
  tree_.at(units[0]).pinned = true;
  const CheckpointId first = states.take_for_answer({}).value();
  const CheckpointId second = states.take_for_answer({}).value();
  EXPECT_EQ(first, of_prompts[1]);
  EXPECT_EQ(second, of_prompts[2]);
  EXPECT_EQ(states.take_for_answer({}), std::nullopt);
  states.attach(first, units[8]);
  states.attach(second, units[9]);
  EXPECT_EQ(states.take_for_answer({}), first);  // of answers the one used least lately
  EXPECT_EQ(states.take(), of_prompts[3]);       // they have no more than their share
  EXPECT_EQ(states.of(units[0]), of_prompts[0]);
}

}  // namespace
}  // namespace headrace::state_checkpoints_test
