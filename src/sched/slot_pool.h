// Slots (rows of the engine's SlotTable): which are free, and which a sequence has left while a
// step in flight still refers to them. Each slot is free, taken, or leaving.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace headrace {

// A slot whose sequence has left it. It is free again when no step in flight refers to it.
struct LeavingSlot {
  SequenceId sequence;
  SlotId slot;
  Ticket last_step;
  bool ended = false;  // with its answer, and not preempted
  bool background = false;
  Sequence* row = nullptr;  // of a static batch: it is computed until the batch has ended
};

class SlotPool {
 public:
  explicit SlotPool(int32_t count);

  size_t free_count() const { return free_.size(); }
  std::span<const SlotId> free() const { return free_; }
  size_t leaving_count() const { return leaving_.size(); }
  std::span<const LeavingSlot> leaving() const { return leaving_; }
  std::span<LeavingSlot> leaving() { return leaving_; }
  // Steps in which a slot was held for the rest of a static batch, summed over slots.
  uint64_t idle_row_steps() const { return idle_row_steps_; }

  SlotId take();  // REQUIRES: one is free
  // The slot was only reserved: no plan has named it.
  void give_back(SlotId slot) { free_.push_back(slot); }
  void leave(const LeavingSlot& leaving) { leaving_.push_back(leaving); }
  // Frees what no step after `applied` refers to. With `hold_ended`, slots of ended rows stay.
  void release(Ticket applied, bool hold_ended);
  // Released slots that no plan has told the device of yet.
  std::vector<ReleasedSlot> take_released() { return std::exchange(released_, {}); }

 private:
  std::vector<SlotId> free_;
  std::vector<LeavingSlot> leaving_;
  std::vector<ReleasedSlot> released_;
  uint64_t idle_row_steps_ = 0;
};

}  // namespace headrace
