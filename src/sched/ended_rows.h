// Rows of a static batch whose answers have ended (static_policy.h): they keep their slots and
// pages, and are computed for nobody, while their batch goes on. Where pages are short they are the
// first to go.
#pragma once

#include <span>

#include "kv/block_pool.h"
#include "sched/queue_policy.h"
#include "sched/sequence.h"
#include "sched/slot_pool.h"

namespace headrace {

class EndedRows {
 public:
  // All outlive this object.
  EndedRows(const QueuePolicy& policy, BlockPool& pool, SlotPool& slots)
      : policy_(policy), pool_(pool), slots_(slots) {}

  // Whether the row of a sequence that ends now is computed on.
  bool goes_on(const Sequence& sequence) const;
  // Slots that their sequences have left; those with a row are computed on.
  std::span<LeavingSlot> slots() { return slots_.leaving(); }
  // Its pages go at once (fenced), its slot when its batch has ended.
  void drop(LeavingSlot& leaving);
  bool drop_one();  // for its pages; false: there is none
  void drop_all();  // their batch has ended

 private:
  const QueuePolicy& policy_;
  BlockPool& pool_;
  SlotPool& slots_;
};

}  // namespace headrace
