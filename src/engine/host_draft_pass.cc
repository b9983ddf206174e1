#include "engine/host_draft_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/model_drafter.h"

namespace headrace {
namespace {

ModelPass::Sizes draft_sizes(const ModelRunnerOptions& options) {
  return {.tokens = draft_rows_max(options), .kv_length_max = options.max_model_len};
}

Shape feature_shape(const ModelRunnerOptions& options) {
  return {draft_rows_max(options), options.draft->spec().hidden_size};
}

}  // namespace

int64_t HostDraftPass::bytes(Device& device, const Model& model,
                             const ModelRunnerOptions& options) {
  const int64_t features =
      options.draft_head ? *tensor_bytes(DType::kF32, feature_shape(options)) : 0;
  return features + ModelPass::workspace_bytes(device, *options.draft, draft_sizes(options)) +
         DraftChooser::bytes(
             device, chooser_source(options.end_ids, model.spec().vocab_size, options.draft_head));
}

Result<std::unique_ptr<DraftPass>> HostDraftPass::create(Device& device, const Model& model,
                                                         const KvStorage& storage,
                                                         const ModelRunnerOptions& options,
                                                         const DraftFeatures* features) {
  HR_ASSIGN_OR_RETURN(auto pass, ModelPass::create(device, *options.draft, draft_sizes(options),
                                                   /*group=*/nullptr, options.hooks));
  HR_ASSIGN_OR_RETURN(
      DraftChooser chooser,
      DraftChooser::create(
          device, chooser_source(options.end_ids, model.spec().vocab_size, options.draft_head)));
  std::unique_ptr<HostDraftPass> made(new HostDraftPass(
      storage, draft_layers(model, options), std::move(pass), std::move(chooser), features));
  if (features != nullptr) {
    const Shape shape = feature_shape(options);
    HR_ASSIGN_OR_RETURN(made->feature_rows_, device.allocate(*tensor_bytes(DType::kF32, shape)));
    made->feature_ = TensorView(made->feature_rows_.data(), DType::kF32, shape);
  }
  return std::unique_ptr<DraftPass>(std::move(made));
}

HostDraftPass::HostDraftPass(const KvStorage& storage, LayerRange layers,
                             std::unique_ptr<ModelPass> pass, DraftChooser chooser,
                             const DraftFeatures* features)
    : kv_(storage.layers().subspan(static_cast<size_t>(layers.first),
                                   static_cast<size_t>(layers.last - layers.first))),
      builder_(storage.plan(), layers, /*keeps_rows=*/false),
      pass_(std::move(pass)),
      chooser_(std::move(chooser)),
      features_(features) {
  if (features != nullptr) builder_.place_too(features->layers());
}

std::span<const SampleResult> HostDraftPass::run(std::span<const DraftRun> runs,
                                                 std::span<const LogitRow> rows,
                                                 const SlotTable& slots) {
  runs_.clear();
  for (const DraftRun& run : runs) runs_.push_back(run.tokens);
  if (features_ != nullptr) carry_features(runs);
  pass_->end();
  ForwardBatch batch = builder_.build(runs_, slots);
  if (features_ != nullptr) {
    batch.features = feature_.row_range(0, std::ssize(batch.tokens));
    OpContext op = pass_->context();
    if (runs.front().feature_row < 0) {
      features_->load(op, places_of(batch), feature_.row_range(0, std::ssize(batch.tokens)));
    }
  }
  pass_->forward(batch, kv_, {});
  chosen_.clear();
  for (size_t first = 0; first < rows.size(); first += kLogitRowsMax) {
    const auto part = rows.subspan(first, std::min<size_t>(kLogitRowsMax, rows.size() - first));
    OpContext op = pass_->context();
    const Workspace::Mark mark(op.workspace);
    const auto chosen = chooser_.choose(op, part, pass_->logits(part), slots);
    chosen_.insert(chosen_.end(), chosen.begin(), chosen.end());
  }
  return chosen_;
}

void HostDraftPass::carry_features(std::span<const DraftRun> runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].feature_row < 0) continue;
    std::memcpy(f32_row(feature_, static_cast<int64_t>(i)),
                f32_row(pass_->hidden(), runs[i].feature_row),
                static_cast<size_t>(feature_.columns()) * sizeof(float));
  }
}

}  // namespace headrace
