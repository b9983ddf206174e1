#include "engine/device_slots.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/slot_table.h"

namespace headrace {
namespace {

// Entries are applied all at once: of several for one place only the last may stay.
void keep_last_of_each_place(std::vector<BlockTableEntry>& entries) {
  const auto by_place = [](const BlockTableEntry& a, const BlockTableEntry& b) {
    return a.index < b.index;
  };
  std::stable_sort(entries.begin(), entries.end(), by_place);
  size_t kept = 0;
  for (const BlockTableEntry& entry : entries) {
    if (kept > 0 && entries[kept - 1].index == entry.index) --kept;
    entries[kept++] = entry;
  }
  entries.resize(kept);
}

}  // namespace

DeviceSlotParts DeviceSlotParts::place(ArenaPlaces& places, const DeviceSlotsShape& shape) {
  const auto slots = static_cast<size_t>(shape.slot_count);
  const auto tables = static_cast<size_t>(shape.group_count) * slots;
  DeviceSlotParts parts;
  parts.block_tables = places.take<int32_t>(tables * static_cast<size_t>(shape.blocks_max));
  parts.last_tokens = places.take<TokenId>(slots + 1);
  // Two counts share the word that an atomic takes.
  const size_t counts = slots * static_cast<size_t>(shape.vocab_size);
  parts.token_counts = places.take<uint16_t>((counts + 1) / 2 * 2);
  return parts;
}

Result<DeviceSlots> DeviceSlots::create(Device& device, const DeviceSlotsShape& shape) {
  ArenaPlaces places;
  const DeviceSlotParts parts = DeviceSlotParts::place(places, shape);
  if (parts.block_tables.count > INT32_MAX) {  // an entry's place is an int32
    return invalid_argument(fmt::format(
        "block tables of {} sequences of {} blocks each are more than a GPU's step can address: "
        "lower --max-num-seqs or --max-model-len",
        shape.slot_count, shape.blocks_max));
  }
  DeviceSlots slots(shape);
  HR_ASSIGN_OR_RETURN(slots.block_tables_, device.allocate(parts.block_tables.bytes()));
  HR_ASSIGN_OR_RETURN(slots.last_tokens_, device.allocate(parts.last_tokens.bytes()));
  HR_ASSIGN_OR_RETURN(slots.token_counts_, device.allocate(parts.token_counts.bytes()));
  const auto stream = device.create_stream();
  for (const Buffer* buffer : {&slots.block_tables_, &slots.last_tokens_, &slots.token_counts_}) {
    stream->fill_zero(buffer->data(), buffer->size());
  }
  HR_RETURN_IF_ERROR(stream->synchronize());
  return slots;
}

void DeviceSlots::collect(const StepPlan& plan) {
  entries_.clear();
  marks_.clear();
  cleared_.clear();
  for (const Admission& admission : plan.admitted) {
    for (const GroupBlocks& blocks : admission.blocks) add_blocks(admission.slot, blocks);
    if (penalises_tokens(admission.request->sampling)) add_marks(admission);
  }
  for (const Work& work : plan.work) {
    for (const GroupBlocks& blocks : work.new_blocks) add_blocks(work.slot, blocks);
  }
  // A sequence joins with the page that it shares and writes into its copy in the same step.
  if (!plan.admitted.empty() && !plan.copies.empty()) keep_last_of_each_place(entries_);
}

void DeviceSlots::add_blocks(SlotId slot, const GroupBlocks& blocks) {
  int64_t index = table_first(slot, blocks.group) + blocks.first_index;
  CHECK(blocks.first_index + static_cast<int64_t>(blocks.blocks.size()) <= shape_.blocks_max);
  for (const BlockId block : blocks.blocks) {
    entries_.push_back({static_cast<int32_t>(index++), block.value});
  }
}

void DeviceSlots::add_marks(const Admission& admission) {
  cleared_.push_back(admission.slot);
  const int64_t row = int64_t{admission.slot.value} * shape_.vocab_size;
  const SamplingParams& sampling = admission.request->sampling;
  const size_t count = admission.tokens.size();
  size_t first = 0, prompt = admission.request->prompt.size();
  if (has_penalty_window(sampling)) {  // in which a token of the prompt is one as any
    first = count - std::min(count, static_cast<size_t>(sampling.penalty_window));
    prompt = 0;
  }
  for (size_t i = first; i < count; ++i) {
    marks_.push_back({.index = row + admission.tokens[i], .in_output = i < prompt ? 0 : 1});
  }
}

void DeviceSlots::clear_counts(Stream& stream) {
  const int64_t bytes = int64_t{shape_.vocab_size} * 2;
  for (const SlotId slot : cleared_) {
    stream.fill_zero(token_counts_.data() + slot.value * bytes, bytes);
  }
}

}  // namespace headrace
