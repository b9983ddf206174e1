// RankCompute: what one rank computes a step with on a CPU: its part of the model, its pages of
// keys and values, its scratch memory. A model that is not split has one. Used by the rank's thread
// (rank_threads.h), or by the engine's between its calls.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "engine/state_storage.h"
#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/workspace.h"

namespace headrace {

// Rows of logits computed at a time: 32 rows of a 49,152-token vocabulary are 6 MB.
inline constexpr int32_t kLogitRowsMax = 32;

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
  // Of the step whose pages were taken.
  void forward(const StepPlan& plan, const ForwardBatch& batch, LayerTaps taps);
  // Of the forward pass before, the rows' logits [rows, V], to the end of a Mark; of ranks that
  // are not the first, of no meaning. REQUIRES: at most kLogitRowsMax rows
  TensorView logits(std::span<const LogitRow> rows);
  // Gives back the step's memory.
  void end_step() { step_mark_.reset(); }
  bool in_step() const { return step_mark_.has_value(); }

  OpContext context() { return {device_, *stream_, workspace_, mesh_, hooks_}; }
  Device& device() const { return device_; }
  Stream& stream() const { return *stream_; }
  KvStorage& storage() { return storage_; }
  Workspace& workspace() { return workspace_; }

 private:
  RankCompute(const ModelRank& rank, KvStorage storage, StateStorage states, Communicator& group,
              const OpHooks* hooks);

  Device& device_;
  const Model& model_;
  KvStorage storage_;
  StateStorage states_;
  std::unique_ptr<Stream> stream_;
  Mesh mesh_;
  OpHooks unwatched_hooks_;
  const OpHooks* hooks_ =
      nullptr;            // the runner's, or of other ranks than the first unwatched_hooks_
  SingleRank no_others_;  // of the groups that a model is not split over
  Workspace workspace_;
  bool poisons_kv_ = false;
  std::optional<Workspace::Mark> step_mark_;
  TensorView hidden_;  // [T, D]
};

}  // namespace headrace
