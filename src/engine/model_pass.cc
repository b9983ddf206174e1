#include "engine/model_pass.h"

#include <iterator>
#include <utility>

#include "engine/step_scratch.h"
#include "ops/sampling/sample.h"

namespace headrace {
namespace {

int64_t logit_row_bytes(const Model& model) {
  return model.spec().logit_count() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

int64_t ModelPass::workspace_bytes(Device& device, const Model& model, Sizes sizes) {
  const int threads = device.pool().thread_count();
  ArenaPlaces places;
  place_hidden(places, model, sizes.tokens);
  HeadScratch::place(places, model, kLogitRowsMax, logit_row_bytes(model));
  places.take<std::byte>(
      static_cast<size_t>(sample_workspace_bytes(threads, model.spec().logit_count())));
  places.take<std::byte>(static_cast<size_t>(
      model.workspace_bytes(sizes.tokens, kLogitRowsMax, sizes.kv_length_max, threads)));
  return places.bytes_for(kScratchPartsMax);
}

Result<std::unique_ptr<ModelPass>> ModelPass::create(Device& device, const Model& model,
                                                     Sizes sizes, Communicator* group,
                                                     const OpHooks* hooks) {
  HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(workspace_bytes(device, model, sizes)));
  return std::unique_ptr<ModelPass>(new ModelPass(device, model, group, hooks, std::move(buffer)));
}

ModelPass::ModelPass(Device& device, const Model& model, Communicator* group, const OpHooks* hooks,
                     Buffer workspace)
    : device_(device),
      model_(model),
      hooks_(hooks),
      stream_(device.create_stream()),
      mesh_{group != nullptr ? group : &no_others_, &no_others_, &no_others_},
      workspace_(std::move(workspace)) {}

void ModelPass::forward(const ForwardBatch& batch, std::span<const KvLayerView> kv,
                        LayerTaps taps) {
  CHECK(!running());
  mark_.emplace(workspace_);
  ArenaPlaces places;
  const TensorPart hidden = place_hidden(places, model_, std::ssize(batch.tokens));
  run(batch, kv, taps, {{0, model_.spec().layer_count}, hidden.in(workspace_.take(places.used()))});
}

void ModelPass::forward(const ForwardBatch& batch, std::span<const KvLayerView> kv, LayerTaps taps,
                        const Part& part) {
  CHECK(!running());
  mark_.emplace(workspace_);
  run(batch, kv, taps, part);
}

void ModelPass::run(const ForwardBatch& batch, std::span<const KvLayerView> kv, LayerTaps taps,
                    const Part& part) {
  hidden_ = part.hidden;
  OpContext op = context();
  if (part.layers.first == 0) model_.embed(op, batch, hidden_);
  model_.layers(op, batch, part.layers, kv, hidden_, taps);
}

// Gathers the rows' hidden states, so that the head computes these alone, and no row twice.
TensorView ModelPass::logits(std::span<const LogitRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  ArenaPlaces places;
  const HeadScratch scratch = HeadScratch::place(places, model_, count, logit_row_bytes(model_));
  std::byte* const memory = workspace_.take(places.used());
  const TensorView gathered = scratch.gathered.in(memory);
  for (int64_t i = 0; i < count; ++i) {
    stream_->copy(gathered.row(i), hidden_.row(rows[static_cast<size_t>(i)].hidden_row),
                  gathered.row_stride);
  }
  const TensorView logits(scratch.logits.in(memory), DType::kF32,
                          Shape{count, model_.spec().logit_count()});
  OpContext op = context();
  model_.head(op, gathered, logits);
  return logits;
}

}  // namespace headrace
