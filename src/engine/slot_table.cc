#include "engine/slot_table.h"

#include "base/check.h"

namespace headrace {

SlotTable::SlotTable(int32_t slot_count, int32_t group_count, int32_t blocks_max, Counting counting)
    : group_count_(static_cast<size_t>(group_count)),
      blocks_max_(static_cast<size_t>(blocks_max)),
      counting_(counting),
      slots_(static_cast<size_t>(slot_count)),
      tables_(new int32_t[slots_.size() * group_count_ * blocks_max_]),
      table_sizes_(slots_.size() * group_count_, 0) {}

const Slot& SlotTable::operator[](SlotId slot) const {
  const Slot& row = slots_.at(static_cast<size_t>(slot.value));
  CHECK(row.request != nullptr);
  return row;
}

void SlotTable::update(const StepPlan& plan) {
  for (const ReleasedSlot& released : plan.released) {
    slots_.at(static_cast<size_t>(released.slot.value)) = Slot{};
  }
  for (const Admission& admission : plan.admitted) admit(admission);
  for (const Work& work : plan.work) {
    const Slot& slot = slots_.at(static_cast<size_t>(work.slot.value));
    CHECK(slot.sequence == work.sequence);
    for (const GroupBlocks& blocks : work.new_blocks) add_blocks(work.slot, blocks);
  }
}

void SlotTable::clear() {
  for (Slot& slot : slots_) slot = Slot{};
}

void SlotTable::admit(const Admission& admission) {
  Slot& slot = slots_.at(static_cast<size_t>(admission.slot.value));
  slot = Slot{};
  slot.sequence = admission.sequence;
  slot.choice = admission.choice;
  slot.request = admission.request;
  slot.tokens = admission.tokens;
  slot.prompt_length = static_cast<int32_t>(admission.request->prompt.size());
  CHECK(slot.tokens.size() >= static_cast<size_t>(slot.prompt_length));
  for (size_t group = 0; group < group_count_; ++group) {
    table_sizes_[row_of(admission.slot, static_cast<int32_t>(group))] = 0;
  }
  for (const GroupBlocks& blocks : admission.blocks) add_blocks(admission.slot, blocks);
  if (counting_ == Counting::kPenalties) {
    slot.counts = PenaltyCounts(slot.request->sampling, slot.tokens, slot.prompt().size());
  }
  if (slot.request->constraint != nullptr) {
    slot.matcher = slot.request->constraint->begin();
    for (TokenId token : slot.output()) slot.matcher->accept(token);
  }
}

void SlotTable::add_blocks(SlotId slot, const GroupBlocks& blocks) {
  const size_t row = row_of(slot, blocks.group);
  const auto first = static_cast<size_t>(blocks.first_index);
  const size_t end = first + blocks.blocks.size();
  CHECK(static_cast<size_t>(blocks.group) < group_count_ && end <= blocks_max_);
  int32_t* const table = &tables_[row * blocks_max_];
  for (size_t& size = table_sizes_[row]; size < end; ++size) table[size] = -1;
  for (size_t i = 0; i < blocks.blocks.size(); ++i) table[first + i] = blocks.blocks[i].value;
}

void SlotTable::expect(SlotId slot) { ++slots_.at(static_cast<size_t>(slot.value)).in_flight; }

void SlotTable::append(SlotId slot_id, TokenId token) {
  Slot& slot = slots_.at(static_cast<size_t>(slot_id.value));
  if (slot.in_flight > 0) --slot.in_flight;
  slot.tokens.push_back(token);
  slot.counts.follow(slot.tokens);
  if (slot.matcher != nullptr) slot.matcher->accept(token);
}

}  // namespace headrace
