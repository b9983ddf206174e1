// StepRecorder: the recordings of steps that only decode or verify proposals, and what is needed to
// make them. A recording reads its inputs where every step has them (StepArena, SampleResults,
// DeviceSlots, KvStorage) and takes scratch memory of its own, which all recordings share.
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
                [this](RecordedSize size) { return record(sources_, scratch_, size); }) {}

  // The rest is the owner's thread's.
  //
  // The number of rows that a step of this plan is padded to; 0: no recording fits it. A step that
  // verifies proposals is recorded where its rows may attend alone: each then reads the keys and
  // values of its sequence, `token_bytes` a token, and together at most kReadAgain more.
  int32_t padded_rows(const StepPlan& plan, int64_t token_bytes) const;
  static constexpr int64_t kReadAgain = int64_t{256} << 20;
  StepGraphs& graphs() { return graphs_; }

  // A recording of such a step, on the calling thread.
  static Result<StepGraphs::Recording> record(const Sources& sources, Workspace& scratch,
                                              RecordedSize size);

 private:
  const Sources sources_;
  Workspace scratch_;
  StepGraphs graphs_;  // last: its thread uses what stands above
};

}  // namespace headrace
