// StepWriter: writes into a step's arena what the host has to tell the device: tokens and their
// places, the tiles of attention, the rows of logits and how each of them is sampled, and what
// changes in the slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/device_slots.h"
#include "engine/kv_storage.h"
#include "engine/padding_step.h"
#include "engine/state_storage.h"
#include "engine/step_arena.h"
#include "engine/step_stages.h"
#include "ops/attention/plan.h"
#include "sched/step_plan.h"

namespace headrace {

// Used by the engine thread, between StepArena::start_step() and upload().
class StepWriter {
 public:
  // All outlive this.
  struct Sources {
    std::span<const AttentionPlanShape> attention;  // [groups]
    const KvStorage& storage;
    const StateStorage& states;
    const DeviceSlots& slots;
    int32_t adapter_slots;  // 0: no row has an adapter
    int32_t last_layer;     // of the model, in the storage
    bool marks = true;      // false: tokens that penalties count are another's to tell
  };
  StepWriter(StepArena& arena, const Sources& sources)
      : arena_(arena),
        attention_(sources.attention),
        storage_(sources.storage),
        states_(sources.states),
        slots_(sources.slots),
        adapter_slots_(sources.adapter_slots),
        last_layer_(sources.last_layer),
        tells_marks_(sources.marks) {}

  // What is read of a step behind its layers.
  struct HeadRows {
    std::span<const LogitRow> rows;                // [R]
    std::span<const DeviceSampleRow> sample_rows;  // [R]
    std::span<const DeviceLogitBias> biases;       // of all rows
  };
  // But for results and tops, which have no place in the arena. `sequences`: the slots of the
  // batch's (BatchBuilder::sequence_slots()), several of which may be rows of one slot's sequence,
  // side by side. A step of fewer than `padded` rows gets rows of padding.
  // REQUIRES: slots.collect() was called for the plan as KvStorage mapped it, and
  // states.begin_step()
  StepInput write(const ForwardBatch& batch, std::span<const SlotId> sequences,
                  const HeadRows& logits, size_t padded);
  // The same of a step of nothing but padding.
  StepInput write_padding(const PaddingStep& step);

 private:
  // How many of its rows a step has at most of one sequence.
  int32_t write_states(const ForwardBatch& batch, const StepParts& parts);
  void write_logit_rows(const StepParts& parts, const HeadRows& logits);
  AttentionPlan plan_group(const ForwardBatch& batch, std::span<const SlotId> sequences,
                           size_t group, std::span<std::byte> to);
  AttentionPlan plan_kept(const ForwardBatch::KeptRows& kept, std::span<const LogitRow> rows,
                          std::span<std::byte> to);

  StepArena& arena_;
  const std::span<const AttentionPlanShape> attention_;
  const KvStorage& storage_;
  const StateStorage& states_;
  const DeviceSlots& slots_;
  const int32_t adapter_slots_, last_layer_;
  const bool tells_marks_;
  std::vector<AttentionSequence> sequences_;  // [S], of one group at a time
  std::vector<int32_t> hidden_rows_;          // [R]
  std::vector<AdapterRows> kept_adapters_;    // of the rows that are kept
};

}  // namespace headrace
