// StepRecorder: the recordings of steps that only decode, and what is needed to make them. A
// recording reads its inputs where every step has them (StepArena, SampleResults, DeviceSlots,
// KvStorage) and takes scratch memory of its own, which all recordings share.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device_sampler.h"
#include "engine/padding_step.h"
#include "engine/step_arena.h"
#include "engine/step_graphs.h"
#include "engine/step_stages.h"
#include "sched/step_plan.h"
#include "tensor/workspace.h"

namespace headrace {

class StepRecorder {
 public:
  // What a recording reads; all of it outlives the recorder.
  struct Sources {
    Device& device;
    Mesh& mesh;
    const OpHooks* hooks;
    const StepStages& stages;
    std::span<const AttentionPlanShape> attention;  // [groups]
    const StepArena& arena;
    const SampleResults& results;
    const PaddingTable& padding;
    bool keeps_states;      // of sequences
    int32_t adapter_slots;  // 0: no row has an adapter
  };
  // Records steps of up to `rows_max` rows, with `scratch` as their workspace.
  StepRecorder(const Sources& sources, Workspace scratch, int32_t rows_max)
      : sources_(sources),
        scratch_(std::move(scratch)),
        graphs_(StepGraphs::sizes_up_to(rows_max),
                [this](RecordedSize size) { return record(size); }) {}

  // The rest is the owner's thread's.
  //
  // The number of rows that a step of this plan is padded to; 0: no recording fits it.
  int32_t padded_rows(const StepPlan& plan) const;
  StepGraphs& graphs() { return graphs_; }

 private:
  // On the recorder's thread.
  Result<StepGraphs::Recording> record(RecordedSize size);

  const Sources sources_;
  Workspace scratch_;
  StepGraphs graphs_;  // last: its thread uses what stands above
};

}  // namespace headrace
