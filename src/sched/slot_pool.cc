#include "sched/slot_pool.h"

#include "base/check.h"

namespace headrace {

SlotPool::SlotPool(int32_t count) {
  for (int32_t slot = count - 1; slot >= 0; --slot) free_.push_back(SlotId(slot));
}

SlotId SlotPool::take() {
  CHECK(!free_.empty());
  const SlotId slot = free_.back();
  free_.pop_back();
  return slot;
}

void SlotPool::release(Ticket applied, bool hold_ended) {
  std::erase_if(leaving_, [&](const LeavingSlot& leaving) {
    if (hold_ended && leaving.ended) {
      ++idle_row_steps_;
      return false;
    }
    if (leaving.last_step > applied) return false;
    free_.push_back(leaving.slot);
    released_.push_back({leaving.sequence, leaving.slot});
    return true;
  });
}

}  // namespace headrace
