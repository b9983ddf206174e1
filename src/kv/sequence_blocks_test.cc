#include "kv/sequence_blocks.h"

#include <gtest/gtest.h>

#include "kv/kv_demand.h"

namespace headrace::sequence_blocks_test {
namespace {

const std::vector<KvGroupSpec> kFullGroup = {{.block_tokens = 4}};
const std::vector<KvGroupSpec> kTwoGroups = {
    {.block_tokens = 4}, {.kind = KvKind::kSliding, .window = 6, .block_tokens = 4}};

struct Grown {
  std::vector<GroupBlocks> added;
  std::vector<BlockCopy> copies;
};

Grown grow(SequenceBlocks& blocks, BlockPool& pool, int32_t first, int32_t count,
           int32_t reserve_tokens = 0) {
  Grown grown;
  const int32_t needed = blocks.pages_needed(pool, first, count, reserve_tokens);
  const int32_t free_before = pool.free_count();
  blocks.grow(pool, first, count, reserve_tokens, Ticket(1), grown.added, grown.copies);
  EXPECT_EQ(free_before - pool.free_count(), needed);
  return grown;
}

TEST(SequenceBlocks, GrowsByWholePages) {
  BlockPool pool(8);
  SequenceBlocks blocks(kFullGroup);
  Grown grown = grow(blocks, pool, 0, 5);
  ASSERT_EQ(grown.added.size(), 1u);
  EXPECT_EQ(grown.added[0].first_index, 0);
  EXPECT_EQ(grown.added[0].blocks.size(), 2u);
  EXPECT_TRUE(grow(blocks, pool, 5, 3).added.empty());
  grown = grow(blocks, pool, 8, 1);
  EXPECT_EQ(grown.added[0].first_index, 2);
  EXPECT_EQ(blocks.pages_held(), 3);
  blocks.release_all(pool, Ticket());
  EXPECT_EQ(pool.free_count(), 8);
}

TEST(SequenceBlocks, ReservesTheWholeContextAtOnce) {
  BlockPool pool(8);
  SequenceBlocks blocks(kFullGroup);
  EXPECT_EQ(grow(blocks, pool, 0, 5, 32).added[0].blocks.size(), 8u);
  EXPECT_TRUE(grow(blocks, pool, 5, 27, 32).added.empty());
}

TEST(SequenceBlocks, AForkCopiesThePartialPageOnWriteAndTheLastHolderDoesNot) {
  BlockPool pool(8);
  SequenceBlocks parent(kFullGroup);
  grow(parent, pool, 0, 6);
  SequenceBlocks child = parent.fork(pool, 6);
  EXPECT_EQ(pool.free_count(), 6);
  const Grown child_grown = grow(child, pool, 6, 1);
  ASSERT_EQ(child_grown.copies.size(), 1u);
  EXPECT_EQ(child_grown.copies[0].from, parent.blocks(0)[1]);
  EXPECT_EQ(child_grown.copies[0].to, child.blocks(0)[1]);
  EXPECT_EQ(child_grown.added[0].first_index, 1);
  EXPECT_TRUE(grow(parent, pool, 6, 1).copies.empty());
  EXPECT_TRUE(pool.is_shared(parent.blocks(0)[0]));  // the full page stays shared
  parent.release_all(pool, Ticket());
  child.release_all(pool, Ticket());
  pool.advance(Ticket(1));  // the copy is done
  EXPECT_EQ(pool.free_count(), 8);
}

TEST(SequenceBlocks, AForkAtAPageBoundaryCopiesNothing) {
  BlockPool pool(8);
  SequenceBlocks parent(kFullGroup);
  grow(parent, pool, 0, 8, 16);
  SequenceBlocks child = parent.fork(pool, 8);  // of 4 reserved pages it takes the 2 in use
  EXPECT_EQ(child.pages_held(), 2);
  EXPECT_TRUE(grow(child, pool, 8, 1).copies.empty());
}

TEST(SequenceBlocks, APageGivenUpForACopyIsFencedByTheCopyingStep) {
  BlockPool pool(4);
  SequenceBlocks parent(kFullGroup);
  grow(parent, pool, 0, 2);
  SequenceBlocks child = parent.fork(pool, 2);
  grow(child, pool, 2, 1);
  parent.release_all(pool, Ticket());  // the copy of step 1 still reads the page
  EXPECT_EQ(pool.fenced_count(), 1);
  pool.advance(Ticket(1));
  EXPECT_EQ(pool.fenced_count(), 0);
}

TEST(SequenceBlocks, ASlidingGroupKeepsItsWindowOnly) {
  BlockPool pool(64);
  SequenceBlocks blocks(kTwoGroups);
  for (int32_t position = 0; position < 60; ++position) {
    blocks.trim(pool, position, Ticket());
    grow(blocks, pool, position, 1);
    const int32_t first_seen = std::max(0, position - 5);
    EXPECT_EQ(blocks.first_held(1), first_seen / 4);
    EXPECT_EQ(blocks.first_held(0), 0);
    EXPECT_LE(blocks.pages_held(), peak_pages(kTwoGroups, position + 1, 1));
  }
  EXPECT_EQ(blocks.table()[1].first_index, blocks.first_held(1));
  blocks.release_all(pool, Ticket());
  EXPECT_EQ(pool.free_count(), 64);
}

TEST(SequenceBlocks, PublishesFullPagesOnly) {
  BlockPool pool(8);
  SequenceBlocks blocks(kFullGroup);
  grow(blocks, pool, 0, 7);
  blocks.publish_full(pool, 0, 7);
  EXPECT_EQ(pool.state(blocks.blocks(0)[0]), BlockState::kPublished);
  EXPECT_EQ(pool.state(blocks.blocks(0)[1]), BlockState::kFilling);
  grow(blocks, pool, 7, 1);
  blocks.publish_full(pool, 7, 8);
  EXPECT_EQ(pool.state(blocks.blocks(0)[1]), BlockState::kPublished);
}

// What covers() promises is what pages_needed() and trim() would find.
TEST(SequenceBlocks, WhatIsCoveredNeedsNothing) {
  for (const auto* groups : {&kFullGroup, &kTwoGroups}) {
    BlockPool pool(200);
    SequenceBlocks blocks(*groups);
    int32_t covered_tokens = 0;
    for (int32_t first = 0; first < 120; ++first) {
      const bool covered = blocks.covers(first, 1);
      const int32_t held = blocks.pages_held();
      if (covered) {
        ++covered_tokens;
        EXPECT_EQ(blocks.pages_needed(pool, first, 1, 0), 0) << first;
      }
      blocks.trim(pool, first, Ticket(0));
      if (covered) {
        EXPECT_EQ(blocks.pages_held(), held) << first;
      }
      grow(blocks, pool, first, 1);
      if (first % 25 != 24) continue;
      SequenceBlocks child = blocks.fork(pool, first + 1);
      EXPECT_FALSE(blocks.covers(first + 1, 1) || child.covers(first + 1, 1));
      child.release_all(pool, Ticket(0));
    }
    EXPECT_GE(covered_tokens, 40);  // half of the tokens: a window lets go of a page at others
  }
}

}  // namespace
}  // namespace headrace::sequence_blocks_test
