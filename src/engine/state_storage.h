// StateStorage: the memory of the states that a model's layers keep of sequences, whatever their
// length. An entry is a state of all layers: one a slot, and behind them the checkpoints
// (kv/state_checkpoints.h); on a GPU one more, of rows of padding. Used by the rank's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "sched/step_plan.h"
#include "tensor/device.h"

namespace headrace {

class StateStorage {
 public:
  static int64_t bytes(const Device& device, const ModelSpec& model, int32_t slots,
                       int32_t checkpoints);
  // Of a model that keeps none it has no memory, and its calls do nothing. `device` outlives it.
  static Result<StateStorage> create(Device& device, const ModelSpec& model, int32_t slots,
                                     int32_t checkpoints);
  // For tests, on a CPU: all states are NaN from now on, and those of sequences that join with
  // none.
  void poison();

  bool has_states() const { return entry_bytes_ > 0; }
  // Before a step's forward pass: sequences that join get, on the stream, the states that they
  // begin with. Says what view() has.
  void begin_step(const StepPlan& plan, Stream& stream);
  // For the forward pass of that step, on a CPU.
  StateView view() const { return {memory_.data(), entry_bytes_, sequences_}; }
  // For a forward pass on a GPU.
  StateView view_on_device(const DeviceStates& states) const {
    return {memory_.data(), entry_bytes_, {}, states};
  }
  // Behind it: choices that begin with their leader's prompt get its state. REQUIRES: begin_step()
  // of the same plan
  void fork(const StepPlan& plan, Stream& stream);

  // Of the step of begin_step(), in its arena's memory: its sequences, then rows of padding, one
  // each; and what they save. As many as there is room for. REQUIRES: there is enough
  void write(std::span<DeviceStateSequence> sequences, std::span<StateCopy> saves) const;
  // Of a sequence of padding.
  DeviceStateSequence padding(int32_t row_first, int32_t row_count) const {
    return {row_first, row_count, /*position=*/0, padding_entry_, 0, 0};
  }
  size_t sequence_count() const { return sequences_.size(); }
  size_t save_count() const { return saves_.size(); }

 private:
  StateStorage(Device& device, Buffer memory, int64_t entry_bytes, int32_t slots,
               int32_t padding_entry)
      : device_(&device),
        memory_(std::move(memory)),
        entry_bytes_(entry_bytes),
        slots_(slots),
        padding_entry_(padding_entry) {}
  static int32_t entry_of(SlotId slot) { return slot.value; }
  int32_t entry_of(CheckpointId checkpoint) const { return slots_ + checkpoint.value; }
  void copy(Stream& stream, int32_t from, int32_t to);
  void poison_entry(int32_t entry);

  Device* device_;
  Buffer memory_;  // [slots + checkpoints (+ 1)][entry_bytes]
  int64_t entry_bytes_;
  int32_t slots_;
  int32_t padding_entry_;
  bool poisons_ = false;
  std::vector<StateSequence> sequences_;  // of the step's work, in its order
  std::vector<StateCopy> saves_;          // of all sequences
};

}  // namespace headrace
