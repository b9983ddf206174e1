// Makes keys and values NaN that nothing may read (tests): what no step has written yet,
// and what a step wrote of tokens that were rejected. A length that reaches them, or a value that
// is masked by a product, shows as NaN logits. CPU, paged memory.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kv_storage.h"
#include "engine/slot_table.h"
#include "sched/step_plan.h"

namespace headrace {

// The whole pool of `page_count` pages.
void poison_pool(const KvStorage& storage, int64_t page_count);
// The pages that sequences get in this plan, before the plan's copies are made.
void poison_new_pages(const KvStorage& storage, const StepPlan& plan);
// Tokens [first, last) of a slot's sequence, which has pages for them.
void poison_tokens(const KvStorage& storage, const SlotTable& slots, SlotId slot, int32_t first,
                   int32_t last);

}  // namespace headrace
