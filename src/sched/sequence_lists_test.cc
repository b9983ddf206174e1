// The lists that sequences are in: what runs, who waits, which slots are free.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sched/policy_memory.h"
#include "sched/running_set.h"
#include "sched/slot_pool.h"
#include "sched/waiting_line.h"

namespace headrace::sequence_lists_test {
namespace {

struct World {
  SequenceMap sequences;

  Sequence& add(uint64_t id, Rank rank, uint64_t waits_since = 0) {
    rank.arrival = id;
    auto sequence = std::make_unique<Sequence>(Sequence{.id = SequenceId(id),
                                                        .request = {},
                                                        .rank = rank,
                                                        .waits_since = waits_since,
                                                        .output = {},
                                                        .followers = {},
                                                        .blocks = SequenceBlocks({}),
                                                        .path = {},
                                                        .state = Waiting{}});
    return *sequences.emplace(SequenceId(id), std::move(sequence)).first->second;
  }
};

std::vector<uint64_t> ids(std::span<Sequence* const> list) {
  std::vector<uint64_t> result;
  for (const Sequence* each : list) result.push_back(each->id.value);
  return result;
}

TEST(SequenceLists, WhatRunsIsByRankWithTheBackgroundBehind) {
  World world;
  RunningSet running;
  EXPECT_FALSE(running.has_background());
  running.insert(world.add(1, {.background = true}));
  running.insert(world.add(2, {.level = 1}));
  running.insert(world.add(3, {}));
  running.insert(world.add(4, {.level = kPromotedLevel}));
  EXPECT_EQ(ids(running.all()), (std::vector<uint64_t>{4, 3, 2, 1}));
  EXPECT_EQ(ids(running.live()), (std::vector<uint64_t>{4, 3, 2}));
  EXPECT_EQ(running.oldest().id, SequenceId(4));
  EXPECT_EQ(running.youngest().id, SequenceId(1));
  running.remove(running.youngest());
  EXPECT_FALSE(running.has_background());
  EXPECT_EQ(running.live().size(), running.all().size());
}

TEST(SequenceLists, TheLongestWaitIsOfOneThatStillWaits) {
  World world;
  WaitingLine line(world.sequences);
  Sequence& late = world.add(1, {}, 7);
  Sequence& early = world.add(2, {}, 3);
  Sequence& heir = world.add(3, {}, 3);
  for (Sequence* each : {&late, &early}) {
    line.insert(*each);
    line.note_wait(*each);
  }
  line.drop_ended_waits();
  EXPECT_EQ(line.longest_waiting(), &early);
  line.hand_wait(early, heir);
  line.drop_ended_waits();
  EXPECT_EQ(line.longest_waiting(), &heir);
  heir.state = Prefilling{};
  line.drop_ended_waits();
  EXPECT_EQ(line.longest_waiting(), &late);
  late.rank.level = kPromotedLevel;
  line.drop_ended_waits();
  EXPECT_EQ(line.longest_waiting(), nullptr);
}

TEST(SequenceLists, BackgroundRequestsHaveALineOfTheirOwn) {
  World world;
  WaitingLine line(world.sequences);
  line.insert(world.add(1, {}));
  line.insert(world.add(2, {.background = true}));
  EXPECT_EQ(line.live().size(), 1u);
  EXPECT_EQ(line.background().size(), 1u);
  line.remove(*world.sequences.at(SequenceId(2)));
  EXPECT_TRUE(line.background().empty());
}

TEST(SequenceLists, ASlotIsFreeWhenItsLastStepWasApplied) {
  SlotPool slots(2);
  const SlotId first = slots.take();
  EXPECT_EQ(first, SlotId(0));
  EXPECT_EQ(slots.take(), SlotId(1));
  slots.leave({.sequence = SequenceId(5), .slot = first, .last_step = Ticket(3)});
  slots.release(Ticket(2), /*hold_ended=*/false);
  EXPECT_EQ(slots.free_count(), 0u);
  slots.release(Ticket(3), /*hold_ended=*/false);
  EXPECT_EQ(slots.free_count(), 1u);
  const std::vector<ReleasedSlot> released = slots.take_released();
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].sequence, SequenceId(5));
  EXPECT_TRUE(slots.take_released().empty());
}

TEST(SequenceLists, EndedRowsOfABatchHoldTheirSlots) {
  SlotPool slots(1);
  slots.leave({.sequence = SequenceId(1), .slot = slots.take(), .ended = true});
  slots.release(Ticket(1), /*hold_ended=*/true);
  EXPECT_EQ(slots.free_count(), 0u);
  EXPECT_EQ(slots.idle_row_steps(), 1u);
  slots.release(Ticket(1), /*hold_ended=*/false);
  EXPECT_EQ(slots.free_count(), 1u);
}

TEST(SequenceLists, APolicyRemembersASequenceUntilItEnds) {
  World world;
  PolicyMemory<int> memory;
  Sequence& leader = world.add(1, {});
  Sequence& follower = world.add(2, {});
  memory.of(leader) = 9;
  follower.state = Waiting{.leader = &leader};
  memory.follow(SequenceEvent::kForked, follower);
  EXPECT_EQ(memory.of(follower), 9);
  memory.follow(SequenceEvent::kEnded, follower);
  EXPECT_EQ(memory.of(follower), 0);
}

}  // namespace
}  // namespace headrace::sequence_lists_test
