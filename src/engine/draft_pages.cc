#include "engine/draft_pages.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

DraftPages::DraftPages(const KvPlan& plan, LayerRange layers, int32_t page_count, int32_t ahead)
    : group_(plan.layer_group[static_cast<size_t>(layers.first)]),
      block_tokens_(plan.block_tokens),
      ahead_(ahead),
      filled_(static_cast<size_t>(page_count), 0) {}

void DraftPages::take(const StepPlan& plan) {
  for (const Work& work : plan.work) {
    for (const GroupBlocks& got : work.new_blocks) {
      if (got.group != group_) continue;
      for (size_t i = 0; i < got.blocks.size(); ++i) {
        const BlockId page = got.blocks[i];
        const int32_t begin = (got.first_index + static_cast<int32_t>(i)) * block_tokens_;
        const auto copy = std::find_if(plan.copies.begin(), plan.copies.end(), [&](const auto& c) {
          return c.group == group_ && c.to == page;
        });
        const int32_t taken_over = std::clamp(work.first - ahead_ - begin, 0, block_tokens_);
        filled(page.value) =
            copy == plan.copies.end() ? 0 : std::min(filled(copy->from.value), taken_over);
      }
    }
  }
}

int32_t DraftPages::computed(const SlotTable& slots, SlotId slot) const {
  int32_t tokens = 0;
  for (const int32_t page : slots.block_table(slot, group_)) {
    const int32_t here = page < 0 ? 0 : filled_[static_cast<size_t>(page)];
    tokens += here;
    if (here < block_tokens_) break;
  }
  return tokens;
}

void DraftPages::note(const SlotTable& slots, SlotId slot, int32_t first, int32_t last) {
  const auto table = slots.block_table(slot, group_);
  for (int32_t begin = first / block_tokens_ * block_tokens_; begin < last;
       begin += block_tokens_) {
    const int32_t page = table[static_cast<size_t>(begin / block_tokens_)];
    CHECK(page >= 0 && filled(page) >= std::max(first - begin, 0));
    filled(page) = std::max(filled(page), std::min(last - begin, block_tokens_));
  }
}

}  // namespace headrace
