// ModelPass: what a model computes a batch with on a CPU: its scratch memory, and the hidden rows
// of the batch until their logits are made. A rank has one of its part of the model
// (rank_compute.h), a drafter one of its own model (drafter.h). One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace headrace {

// Rows of logits computed at a time: 32 rows of a 49,152-token vocabulary are 6 MB.
inline constexpr int32_t kLogitRowsMax = 32;

class ModelPass {
 public:
  struct Sizes {
    int32_t tokens = 0;         // of a batch, at most
    int32_t kv_length_max = 0;  // of a sequence
  };
  // Of a workspace with room for such batches, their logits and sampling.
  static int64_t workspace_bytes(Device& device, const Model& model, Sizes sizes);
  // All outlive it. `group`: of the ranks that share the model; null: it is whole. `hooks` may be
  // null.
  static Result<std::unique_ptr<ModelPass>> create(Device& device, const Model& model, Sizes sizes,
                                                   Communicator* group, const OpHooks* hooks);

  // Some of the layers, and the rows of the batch behind those before them, [T, D]: in place. The
  // model's first layer begins with embeddings.
  struct Part {
    LayerRange layers;
    TensorView hidden;
  };
  // `kv`: of the model's layers, [layers].
  void forward(const ForwardBatch& batch, std::span<const KvLayerView> kv, LayerTaps taps);
  // The rows lie in memory that outlives the batch.
  void forward(const ForwardBatch& batch, std::span<const KvLayerView> kv, LayerTaps taps,
               const Part& part);
  // Of the forward pass before, the rows' logits [rows, V], to the end of a Mark; of ranks that
  // are not the first, of no meaning. REQUIRES: at most kLogitRowsMax rows
  TensorView logits(std::span<const LogitRow> rows);
  // Of the forward pass before, to end(): the rows behind the last layer, [T, D].
  const TensorView& hidden() const { return hidden_; }
  // Gives back the batch's memory.
  void end() { mark_.reset(); }
  bool running() const { return mark_.has_value(); }

  OpContext context() { return {device_, *stream_, workspace_, mesh_, hooks_}; }
  Device& device() const { return device_; }
  const Model& model() const { return model_; }
  Stream& stream() const { return *stream_; }
  Workspace& workspace() { return workspace_; }

 private:
  ModelPass(Device& device, const Model& model, Communicator* group, const OpHooks* hooks,
            Buffer workspace);
  void run(const ForwardBatch& batch, std::span<const KvLayerView> kv, LayerTaps taps,
           const Part& part);

  Device& device_;
  const Model& model_;
  const OpHooks* const hooks_;
  std::unique_ptr<Stream> stream_;
  SingleRank no_others_;  // of the groups that a model is not split over
  Mesh mesh_;
  Workspace workspace_;
  std::optional<Workspace::Mark> mark_;
  TensorView hidden_;  // [T, D]
};

}  // namespace headrace
