#include "engine/state_storage.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace headrace {

int64_t StateStorage::bytes(const Device& device, const ModelSpec& model, int32_t slots,
                            int32_t checkpoints) {
  const int padding = device.kind() == DeviceKind::kCuda ? 1 : 0;
  return state_entry_bytes(model) * (int64_t{slots} + checkpoints + padding);
}

Result<StateStorage> StateStorage::create(Device& device, const ModelSpec& model, int32_t slots,
                                          int32_t checkpoints) {
  const int64_t entry_bytes = state_entry_bytes(model);
  Buffer memory;
  if (entry_bytes > 0) {
    auto allocated = device.allocate(bytes(device, model, slots, checkpoints));
    if (!allocated.ok()) {
      return allocated.status().with_context(
          fmt::format("states of {} sequences and {} checkpoints", slots, checkpoints));
    }
    memory = std::move(allocated).value();
  }
  return StateStorage(device, std::move(memory), entry_bytes, slots, slots + checkpoints);
}

void StateStorage::begin_step(const StepPlan& plan, Stream& stream) {
  if (entry_bytes_ == 0) return;
  for (const Admission& admission : plan.admitted) {
    const int32_t entry = entry_of(admission.slot);
    if (admission.checkpoint) {
      copy(stream, entry_of(*admission.checkpoint), entry);
    } else if (poisons_) {
      poison_entry(entry);
    }
  }
  sequences_.clear();
  saves_.clear();
  size_t save_count = 0;
  for (const Work& work : plan.work) save_count += work.saves.size();
  saves_.reserve(save_count);  // sequences point into it
  int32_t row = 0;
  for (const Work& work : plan.work) {
    const size_t first = saves_.size();
    for (const StateSave& save : work.saves) {
      saves_.push_back({save.tokens, entry_of(save.checkpoint)});
    }
    sequences_.push_back({.row_first = row,
                          .row_count = work.count,
                          .position = work.first,
                          .entry = entry_of(work.slot),
                          .saves = std::span(saves_).subspan(first)});
    row += work.count;
  }
}

void StateStorage::fork(const StepPlan& plan, Stream& stream) {
  if (entry_bytes_ == 0) return;
  for (const Work& work : plan.work) {
    for (const SampleTarget& target : work.also_sample) {
      copy(stream, entry_of(work.slot), entry_of(target.slot));
    }
  }
}

void StateStorage::write(std::span<DeviceStateSequence> sequences,
                         std::span<StateCopy> saves) const {
  CHECK(sequences.size() >= sequences_.size() && saves.size() >= saves_.size());
  int32_t next_save = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const StateSequence& sequence = sequences_[i];
    const auto count = static_cast<int32_t>(sequence.saves.size());
    sequences[i] = {sequence.row_first, sequence.row_count, sequence.position,
                    sequence.entry,     next_save,          count};
    next_save += count;
  }
  int32_t row = 0;
  if (!sequences_.empty()) row = sequences_.back().row_first + sequences_.back().row_count;
  for (size_t i = sequences_.size(); i < sequences.size(); ++i) sequences[i] = padding(row++, 1);
  std::copy(saves_.begin(), saves_.end(), saves.begin());
  std::fill(saves.begin() + static_cast<ptrdiff_t>(saves_.size()), saves.end(), StateCopy());
}

void StateStorage::poison() {
  poisons_ = true;
  if (entry_bytes_ == 0) return;
  for (int64_t i = 0; i < memory_.size() / entry_bytes_; ++i) {
    poison_entry(static_cast<int32_t>(i));
  }
}

void StateStorage::poison_entry(int32_t entry) {
  std::memset(memory_.data() + entry * entry_bytes_, 0xff, static_cast<size_t>(entry_bytes_));
}

// On a CPU, pieces of what a core writes in some tens of microseconds.
void StateStorage::copy(Stream& stream, int32_t from, int32_t to) {
  constexpr int64_t kPieceBytes = 256 << 10;
  const std::byte* const source = memory_.data() + from * entry_bytes_;
  std::byte* const target = memory_.data() + to * entry_bytes_;
  if (device_->kind() == DeviceKind::kCuda) return stream.copy(target, source, entry_bytes_);
  const int64_t pieces = (entry_bytes_ + kPieceBytes - 1) / kPieceBytes;
  device_->pool().parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPieceBytes, end = std::min(last * kPieceBytes, entry_bytes_);
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace headrace
