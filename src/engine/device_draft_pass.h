// DeviceDraftPass: the passes of a draft model, or of a head of layers, on a GPU. Each has a step's
// input in an arena of its own and ends with a wait for its tokens, since the next begins with them
// and the host may leave a sequence out. They run on the stream of the model's steps, before the
// step that verifies. Passes of one token a sequence are recorded, on this thread, behind those of
// the step in which one of their size ran first.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/device_sampler.h"
#include "engine/draft_features.h"
#include "engine/draft_pass.h"
#include "engine/model_runner.h"
#include "engine/padding_step.h"
#include "engine/runner_shape.h"
#include "engine/state_storage.h"
#include "engine/step_arena.h"
#include "engine/step_recorder.h"
#include "engine/step_stages.h"
#include "engine/step_writer.h"
#include "engine/token_masks.h"

namespace headrace {

class DeviceDraftPass final : public DraftPass {
 public:
  // What it shares with the runner whose steps it goes before; all outlive it.
  struct Sources {
    Device& device;
    Stream& stream;
    Mesh& mesh;
    const Model& model;  // that it proposes for
    const KvStorage& storage;
    const DeviceSlots& slots;
    const TokenMasks& masks;
    const PaddingTable* padding;    // null: nothing is recorded
    const DraftFeatures* features;  // null: the draft is a model
    const ModelRunnerOptions& options;
  };
  static int64_t bytes(const Device& device, const Model& model, const KvPlan& plan,
                       const ModelRunnerOptions& options);
  static Result<std::unique_ptr<DraftPass>> create(const Sources& sources);

  OpContext context() override {
    return {sources_.device, sources_.stream, workspace_, sources_.mesh, sources_.options.hooks};
  }
  void begin() override { sources_.stream.record(*began_); }
  std::span<const SampleResult> run(std::span<const DraftRun> runs, std::span<const LogitRow> rows,
                                    const SlotTable& slots) override;
  void end() override;
  std::optional<double> device_seconds() override;

 private:
  // What a pass keeps on the device.
  struct Memory {
    StepArena arena;
    SampleResults results;
    StateStorage states;  // of a model that keeps none
    Buffer workspace, recorded_workspace;
    Buffer hidden, features;  // [T, D] of a head
    Buffer logit_ids;
  };
  DeviceDraftPass(const Sources& sources, RunnerShape shape, Memory memory);

  StepInput write(std::span<const DraftRun> runs, std::span<const LogitRow> rows,
                  const SlotTable& slots, size_t padded);
  void bring_features(std::span<const DraftRun> runs, const StepInput& input);
  void start(const StepInput& input, int32_t padded);
  void wait_for(size_t rows);

  const Sources sources_;
  const RunnerShape shape_;
  StepArena arena_;
  SampleResults results_;
  const StateStorage states_;
  Workspace workspace_;
  Workspace recorded_workspace_;
  const Buffer hidden_memory_, feature_memory_, logit_ids_;
  const TensorView hidden_,
      features_;        // of a head: what the last pass computed, what this one reads
  const LayerTap tap_;  // which leaves `hidden_`
  const StepStages stages_;
  BatchBuilder builder_;
  DeviceSampler sampler_;
  StepWriter writer_;
  std::unique_ptr<Event> began_, ended_;  // the passes of a step
  std::vector<int32_t> sizes_;            // of recordings
  // By the rows of a pass, of those that have run; null: not made yet, or it could not be.
  std::map<int32_t, StepGraphs::Recording> recordings_;
  std::set<int32_t> tried_;  // to record
  std::vector<TokenRun> runs_;
  std::vector<DeviceSampleRow> sample_rows_;
  std::span<const DeviceLogitBias> biases_;  // of these rows
  std::vector<SampleResult> chosen_;
};

}  // namespace headrace
