// RankCompute: what one rank computes a step with on a CPU: its part of the model, its pages of
// keys and values, its scratch memory. A model that is not split has one. Used by the rank's thread
// (rank_threads.h), or by the engine's between its calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/kv_poison.h"
#include "engine/kv_storage.h"
#include "engine/model_pass.h"
#include "engine/model_runner.h"
#include "engine/state_storage.h"
#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/workspace.h"

namespace headrace {

class RankCompute {
 public:
  // Of a workspace with room for steps as large as the options say.
  static int64_t workspace_bytes(const ModelRank& rank, const ModelRunnerOptions& options);
  // `group`: of the ranks that share the model; outlives this, as the rank's device and model do.
  static Result<std::unique_ptr<RankCompute>> create(const ModelRank& rank, KvStorage storage,
                                                     Communicator& group,
                                                     const ModelRunnerOptions& options);

  // Moves, maps and copies a step's pages, and copies the states that sequences begin with. The
  // plan with block tables as kernels see them, until the next call.
  Result<const StepPlan*> take_pages(const StepPlan& plan);
  // Of the step whose pages were taken. `part`: of a model of which some layers are loaded.
  void forward(const StepPlan& plan, const ForwardBatch& batch, LayerTaps taps,
               const std::optional<ModelPass::Part>& part = {});
  // Behind a step, where keys and values are poisoned (KvPoison::rejected()); else nothing.
  void poison_rejected(std::span<const LogitRow> rows, const StepResult& result,
                       const SlotTable& slots) {
    if (kv_poison_) kv_poison_->rejected(stream(), rows, result, slots);
  }
  // As of ModelPass.
  TensorView logits(std::span<const LogitRow> rows) { return pass_->logits(rows); }
  // Gives back the step's memory.
  void end_step() { pass_->end(); }
  bool in_step() const { return pass_->running(); }

  OpContext context() { return pass_->context(); }
  Device& device() const { return pass_->device(); }
  Stream& stream() const { return pass_->stream(); }
  KvStorage& storage() { return storage_; }
  Workspace& workspace() { return pass_->workspace(); }

 private:
  RankCompute(KvStorage storage, StateStorage states)
      : storage_(std::move(storage)), states_(std::move(states)) {}

  KvStorage storage_;
  StateStorage states_;
  OpHooks unwatched_hooks_;  // of other ranks than the first
  std::unique_ptr<ModelPass> pass_;
  std::optional<KvPoison> kv_poison_;  // where it is asked for (tests)
};

}  // namespace headrace
