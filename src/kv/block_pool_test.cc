#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace headrace::block_pool_test {
namespace {

TEST(BlockPool, SaysNotNowWhenEmpty) {
  BlockPool pool(2);
  const BlockId a = pool.allocate().value();
  EXPECT_TRUE(pool.allocate().has_value());
  EXPECT_FALSE(pool.allocate().has_value());
  pool.release(a, Ticket());
  EXPECT_EQ(pool.allocate(), a);
}

TEST(BlockPool, APageIsFreeWhenItsLastHolderLetsGo) {
  BlockPool pool(1);
  const BlockId page = pool.allocate().value();
  pool.share(page);
  EXPECT_TRUE(pool.is_shared(page));
  pool.release(page, Ticket());
  EXPECT_EQ(pool.free_count(), 0);
  pool.release(page, Ticket());
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_EQ(pool.state(page), BlockState::kFree);
}

TEST(BlockPool, AFencedPageWaitsForEveryHoldersStep) {
  BlockPool pool(1);
  const BlockId page = pool.allocate().value();
  pool.share(page);
  pool.release(page, Ticket(7));  // the later fence comes first
  pool.release(page, Ticket(6));
  EXPECT_EQ(pool.state(page), BlockState::kFenced);
  EXPECT_EQ(pool.held_count(), 0);
  pool.advance(Ticket(6));
  EXPECT_FALSE(pool.allocate().has_value());
  pool.advance(Ticket(7));
  EXPECT_EQ(pool.allocate(), page);
}

TEST(BlockPool, AFenceThatWasAppliedDoesNotHold) {
  BlockPool pool(1);
  pool.advance(Ticket(7));
  const BlockId page = pool.allocate().value();
  pool.release(page, Ticket(7));
  EXPECT_EQ(pool.free_count(), 1);
}

TEST(BlockPool, ATransferOutlivesTheSequence) {
  BlockPool pool(1);
  const BlockId page = pool.allocate().value();
  pool.publish(page);
  pool.begin_transfer(page);
  pool.release(page, Ticket());  // the sequence ends while the page travels
  EXPECT_EQ(pool.free_count(), 0);
  EXPECT_EQ(pool.state(page), BlockState::kInTransfer);
  pool.end_transfer(page, Ticket(3));
  EXPECT_EQ(pool.state(page), BlockState::kFenced);
  pool.advance(Ticket(3));
  EXPECT_EQ(pool.free_count(), 1);
}

TEST(BlockPoolDeathTest, MisuseIsABug) {
  BlockPool pool(1);
  const BlockId page = pool.allocate().value();
  EXPECT_DEATH(pool.begin_transfer(page), "kPublished");
  pool.release(page, Ticket());
  EXPECT_DEATH(pool.release(page, Ticket()), "more often than held");
  EXPECT_DEATH(pool.share(page), "without a holder");
}

// Random use against a model that only counts.
TEST(BlockPool, HoldsItsInvariantsUnderRandomUse) {
  constexpr int32_t kPages = 16;
  Rng rng(1);
  BlockPool pool(kPages);
  std::vector<BlockId> held;
  uint64_t step = 0;
  for (int i = 0; i < 100000; ++i) {
    switch (rng.below(4)) {
      case 0:
        if (const auto page = pool.allocate()) {
          EXPECT_EQ(pool.references(*page), 1);
          held.push_back(*page);
        }
        break;
      case 1:
        if (!held.empty()) {
          const BlockId page = held[rng.below(held.size())];
          pool.share(page);
          held.push_back(page);
        }
        break;
      case 2:
        if (!held.empty()) {
          std::swap(held[rng.below(held.size())], held.back());
          pool.release(held.back(), Ticket(step + rng.below(3)));
          held.pop_back();
        }
        break;
      default:
        pool.advance(Ticket(++step));
    }
    ASSERT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().message();
    int64_t references = 0;
    for (int32_t page = 0; page < kPages; ++page) references += pool.references(BlockId(page));
    ASSERT_EQ(references, static_cast<int64_t>(held.size()));
  }
  for (BlockId page : held) pool.release(page, Ticket(step));
  pool.advance(Ticket(step + 2));
  EXPECT_EQ(pool.free_count(), kPages);
}

}  // namespace
}  // namespace headrace::block_pool_test
