#include "engine/draft_pages.h"

#include <gtest/gtest.h>

namespace headrace::draft_pages_test {
namespace {

constexpr int32_t kPageTokens = 16;

// A plan of one group in which the last of two layers is the draft's.
class DraftPagesTest : public ::testing::Test {
 protected:
  DraftPagesTest()
      : plan_{.block_tokens = kPageTokens, .layer_group = {0, 0}}, pages_(plan_, {1, 2}, 8) {}

  void admit(int32_t slot, int32_t length, std::vector<BlockId> blocks) {
    auto request = std::make_shared<Request>();
    request->prompt.assign(static_cast<size_t>(length), 1);
    StepPlan step;
    step.admitted.push_back({.sequence = SequenceId(static_cast<uint64_t>(slot)),
                             .slot = SlotId(slot),
                             .request = request,
                             .tokens = request->prompt,
                             .blocks = {{.group = 0, .first_index = 0, .blocks = blocks}}});
    take(step);
  }
  // Work from `first` on, for which the slot gets a page at `index`.
  void get(int32_t slot, int32_t first, int32_t index, BlockId page,
           std::vector<BlockCopy> copies = {}) {
    StepPlan step;
    step.work.push_back({.sequence = SequenceId(static_cast<uint64_t>(slot)),
                         .slot = SlotId(slot),
                         .first = first,
                         .count = 1,
                         .proposed = {},
                         .also_sample = {},
                         .new_blocks = {{.group = 0, .first_index = index, .blocks = {page}}}});
    step.copies = std::move(copies);
    take(step);
  }
  void take(const StepPlan& step) {
    slots_.update(step);
    pages_.take(step);
    ahead_->take(step);
  }
  int32_t computed(int32_t slot) const { return pages_.computed(slots_, SlotId(slot)); }

  const KvPlan plan_;
  SlotTable slots_{4, 1, 4};
  DraftPages pages_;
  std::unique_ptr<DraftPages> ahead_ = std::make_unique<DraftPages>(plan_, LayerRange{1, 2}, 8, 1);
};

TEST_F(DraftPagesTest, APageHoldsWhatWasComputedInIt) {
  admit(0, 40, {});
  get(0, 0, 0, BlockId(3));
  get(0, 16, 1, BlockId(5));
  EXPECT_EQ(computed(0), 0);
  pages_.note(slots_, SlotId(0), 0, 10);
  EXPECT_EQ(computed(0), 10);
  pages_.note(slots_, SlotId(0), 10, 21);
  EXPECT_EQ(computed(0), 21);
  pages_.note(slots_, SlotId(0), 18, 19);  // once more
  EXPECT_EQ(computed(0), 21);
}

TEST_F(DraftPagesTest, FoundPagesAreFilledAndNewOnesEmpty) {
  admit(0, 40, {});
  get(0, 0, 0, BlockId(3));
  get(0, 16, 1, BlockId(5));
  pages_.note(slots_, SlotId(0), 0, 30);
  admit(1, 40, {BlockId(3), BlockId(5)});
  EXPECT_EQ(computed(1), 30);
  admit(2, 40, {});
  get(2, 0, 0, BlockId(3));  // the page was given up
  EXPECT_EQ(computed(2), 0);
}

// Behind its own first tokens a copy holds another's.
TEST_F(DraftPagesTest, ACopyHoldsWhatIsTakenOver) {
  admit(0, 40, {});
  get(0, 0, 0, BlockId(3));
  pages_.note(slots_, SlotId(0), 0, 12);
  admit(1, 40, {BlockId(3)});
  get(1, 7, 0, BlockId(4), {{.group = 0, .from = BlockId(3), .to = BlockId(4)}});
  EXPECT_EQ(computed(1), 7);
  EXPECT_EQ(computed(0), 12);
  admit(2, 40, {BlockId(3)});
  get(2, 14, 0, BlockId(6), {{.group = 0, .from = BlockId(3), .to = BlockId(6)}});
  EXPECT_EQ(computed(2), 12);
}

// A head's row is made of the token behind it, too: of what is taken over the last is another's.
TEST_F(DraftPagesTest, ACopyOfAHeadsRowsHoldsOneLess) {
  DraftPages& rows = *ahead_;
  admit(0, 40, {});
  get(0, 0, 0, BlockId(3));
  rows.note(slots_, SlotId(0), 0, 12);
  admit(1, 40, {BlockId(3)});
  get(1, 7, 0, BlockId(4), {{.group = 0, .from = BlockId(3), .to = BlockId(4)}});
  EXPECT_EQ(rows.computed(slots_, SlotId(1)), 6);
}

}  // namespace
}  // namespace headrace::draft_pages_test
