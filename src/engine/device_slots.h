// DeviceSlots: the part of the SlotTable that lives on a GPU: block tables, the last sampled token
// of each slot, and the token counts that penalties need. The host's SlotTable knows all of it but
// the tokens that steps in flight sample; each step carries what has changed since the last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "ops/sampling/slot_state.h"
#include "sched/step_plan.h"
#include "tensor/arena_places.h"
#include "tensor/device.h"

namespace headrace {

struct DeviceSlotsShape {
  int32_t slot_count = 0;
  int32_t group_count = 0;
  int32_t blocks_max = 0;  // most blocks of a sequence in one group
  int32_t vocab_size = 0;
};

// What slots keep in device memory.
struct DeviceSlotParts {
  ArenaPart<int32_t> block_tables;   // [groups, slots, blocks_max]
  ArenaPart<TokenId> last_tokens;    // [slots + 1]: the last is for rows of padding
  ArenaPart<uint16_t> token_counts;  // [slots, V], an even number of them

  static DeviceSlotParts place(ArenaPlaces& places, const DeviceSlotsShape& shape);
};

class DeviceSlots {
 public:
  static Result<DeviceSlots> create(Device& device, const DeviceSlotsShape& shape);

  // Collects what a plan changes: entries(), marks() and joined().
  void collect(const StepPlan& plan);
  // The block table entries to write; no place of a table occurs twice.
  std::span<const BlockTableEntry> entries() const { return entries_; }
  std::span<const TokenMark> marks() const { return marks_; }
  // Zeroes the counts of the slots that joined with penalties. This comes before
  // update_slot_state() in the stream, which counts the marks.
  void clear_counts(Stream& stream);

  const int32_t* block_table(SlotId slot, int32_t group) const {
    return block_tables() + table_first(slot, group);
  }
  // Entries from a slot's table in one group to its table in the next.
  int32_t group_stride() const { return shape_.slot_count * shape_.blocks_max; }
  int32_t* block_tables() const { return reinterpret_cast<int32_t*>(block_tables_.data()); }
  SlotId padding_slot() const { return SlotId(shape_.slot_count); }
  TokenId* last_tokens() const { return reinterpret_cast<TokenId*>(last_tokens_.data()); }
  uint16_t* token_counts() const { return reinterpret_cast<uint16_t*>(token_counts_.data()); }

 private:
  explicit DeviceSlots(const DeviceSlotsShape& shape) : shape_(shape) {}
  int64_t table_first(SlotId slot, int32_t group) const {
    return (int64_t{group} * shape_.slot_count + slot.value) * shape_.blocks_max;
  }
  void add_blocks(SlotId slot, const GroupBlocks& blocks);
  void add_marks(const Admission& admission);

  DeviceSlotsShape shape_;
  Buffer block_tables_, last_tokens_, token_counts_;  // as DeviceSlotParts has them
  std::vector<BlockTableEntry> entries_;
  std::vector<TokenMark> marks_;
  std::vector<SlotId> cleared_;
};

}  // namespace headrace
