// RunnerShape: the sizes of a device's runner, fixed at start. Each is counted by the placement
// that later fills the memory (tensor/arena_places.h); together they are the runner's row of the
// MemoryPlan.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device_slots.h"
#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "engine/step_stages.h"
#include "models/model.h"
#include "ops/attention/plan.h"
#include "tensor/device.h"

namespace headrace {

struct RunnerShape {
  std::vector<AttentionPlanShape> attention;  // [groups]
  DeviceSlotsShape slots;
  StepCounts step;                    // what a step's arena holds without growing
  int64_t arena_bytes = 0;            // of it
  int64_t workspace_bytes = 0;        // of steps that run without a recording
  int32_t graph_rows_max = 0;         // of a recorded step; 0: none is recorded
  int64_t graph_workspace_bytes = 0;  // of recorded steps, which share one
  int64_t result_rows = 0, result_tops = 0;
  int64_t state_bytes = 0;    // of models that keep states
  int32_t adapter_slots = 0;  // 0: no row has an adapter
  int32_t mask_count = 0;     // an answer with a form samples one token a step

  // Of a draft, whose layers lie behind those of the model that it proposes for, and which proposes
  // tokens of the model's vocabulary.
  struct Drafting {
    int32_t layer_first = 0;
    int32_t vocabulary = 0;
  };
  static RunnerShape plan(const Device& device, const Model& model, const KvPlan& plan,
                          const ModelRunnerOptions& options) {
    return RunnerShape::plan(device, model, plan, options, {});
  }
  static RunnerShape plan(const Device& device, const Model& model, const KvPlan& plan,
                          const ModelRunnerOptions& options, Drafting drafting);
  int64_t device_bytes() const;  // of everything that the runner allocates on the device
};

// The most rows of a recorded step; 0: none is recorded.
int32_t recorded_rows_max(const ModelRunnerOptions& options);

}  // namespace headrace
