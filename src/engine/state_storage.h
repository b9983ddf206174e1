// StateStorage: the memory of the states that a model's layers keep of sequences, whatever their
// length. An entry is a state of all layers: one a slot, and behind them the checkpoints
// (kv/state_checkpoints.h). CPU; used by the rank's thread.
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
  static int64_t bytes(const ModelSpec& model, int32_t slots, int32_t checkpoints);
  // Of a model that keeps none it has no memory, and its calls do nothing. `device` outlives it.
  static Result<StateStorage> create(Device& device, const ModelSpec& model, int32_t slots,
                                     int32_t checkpoints);
  // For tests: all states are NaN from now on, and those of sequences that join with none.
  void poison();

  // Before a step's forward pass: sequences that join get the states that they begin with. Says
  // what view() has.
  void begin_step(const StepPlan& plan);
  // For the forward pass of that step.
  StateView view() const { return {memory_.data(), entry_bytes_, sequences_}; }
  // Behind it: choices that begin with their leader's prompt get its state. REQUIRES: begin_step()
  // of the same plan
  void fork(const StepPlan& plan);

 private:
  StateStorage(Device& device, Buffer memory, int64_t entry_bytes, int32_t slots)
      : device_(&device), memory_(std::move(memory)), entry_bytes_(entry_bytes), slots_(slots) {}
  static int32_t entry_of(SlotId slot) { return slot.value; }
  int32_t entry_of(CheckpointId checkpoint) const { return slots_ + checkpoint.value; }
  void copy(int32_t from, int32_t to);
  void poison_entry(int32_t entry);

  Device* device_;
  Buffer memory_;  // [slots + checkpoints][entry_bytes]
  int64_t entry_bytes_;
  int32_t slots_;
  bool poisons_ = false;
  std::vector<StateSequence> sequences_;  // of the step's work, in its order
  std::vector<StateCopy> saves_;          // of all sequences
};

}  // namespace headrace
