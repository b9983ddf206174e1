// DraftPages: how far a draft model has computed what pages hold. Its layers lie in the pages of
// the model that it drafts for, which computes all tokens, the draft only those of sequences that
// it proposes for, and later. So a page that is found in the prefix cache, copied or shared may
// hold the draft's keys and values of its first tokens, of all or of none.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv_plan.h"
#include "engine/slot_table.h"
#include "sched/step_plan.h"

namespace headrace {

class DraftPages {
 public:
  // `layers`: the draft's, of the plan's. Their groups hold the same tokens, of which one is
  // watched. `ahead`: how many tokens behind its own a row is made of.
  DraftPages(const KvPlan& plan, LayerRange layers, int32_t page_count, int32_t ahead = 0);

  // Pages that sequences get are empty; what is copied to them is what they take over of the
  // tokens before their first work. Before all else of a step.
  void take(const StepPlan& plan);
  // The first so many tokens of the slot's sequence are computed.
  int32_t computed(const SlotTable& slots, SlotId slot) const;
  // Tokens [first, last) of the slot's sequence have been. REQUIRES: all before them are
  void note(const SlotTable& slots, SlotId slot, int32_t first, int32_t last);

 private:
  int32_t& filled(int32_t page) { return filled_[static_cast<size_t>(page)]; }

  const int32_t group_, block_tokens_, ahead_;
  std::vector<int32_t> filled_;  // [pages] tokens from the page's first on
};

}  // namespace headrace
