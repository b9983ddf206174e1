// KvPoison: makes keys and values NaN that nothing may read (tests): what no step has written yet,
// and what a step wrote of tokens that were rejected. A length that reaches them, or a value that
// is masked by a product, shows as NaN logits. Paged memory, on every device: a token's numbers and
// scales in every format lie where the host can say (ops/attention/kv_view.h).
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "engine/batch_builder.h"
#include "engine/kv_storage.h"
#include "engine/poison.h"
#include "engine/slot_table.h"
#include "sched/step_plan.h"

namespace headrace {

// All that it does is done in the order of the stream. `storage` outlives it.
class KvPoison {
 public:
  // Poisons the whole pool of `page_count` pages. The page of padding, which is behind them, stays.
  static Result<KvPoison> create(Device& device, Stream& stream, const KvStorage& storage,
                                 int64_t page_count);

  // The pages that sequences get in this plan, before the plan's copies are made.
  void new_pages(Stream& stream, const StepPlan& plan) const;
  // What a step wrote of tokens that its result rejects: behind those that the slots know, the
  // accepted ones first. `rows` are those that `result` was made of, which the slots do not have
  // yet; what was accepted lies where a chain has it.
  void rejected(Stream& stream, std::span<const LogitRow> rows, const StepResult& result,
                const SlotTable& slots) const;

 private:
  KvPoison(Poison poison, const KvStorage& storage)
      : poison_(std::move(poison)), storage_(&storage) {}
  // Tokens [first, last) of a slot's sequence, which has pages for them.
  void tokens(Stream& stream, const SlotTable& slots, SlotId slot, int32_t first,
              int32_t last) const;

  Poison poison_;
  const KvStorage* storage_;
};

}  // namespace headrace
