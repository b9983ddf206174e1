#include "engine/model_drafter.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

// A draft that has no more to catch up with goes before those that have: they leave it no rows.
constexpr int32_t kInStep = 16;

ModelPass::Sizes draft_sizes(const ModelRunnerOptions& options) {
  return {.tokens = std::max(options.max_num_batched_tokens, options.max_num_seqs),
          .kv_length_max = options.max_model_len};
}

Shape feature_shape(const ModelRunnerOptions& options) {
  return {draft_sizes(options).tokens, options.draft->spec().hidden_size};
}

}  // namespace

int64_t ModelDrafter::pass_bytes(Device& device, const ModelRunnerOptions& options) {
  const int64_t features =
      options.draft_head ? *tensor_bytes(DType::kF32, feature_shape(options)) : 0;
  return features + ModelPass::workspace_bytes(device, *options.draft, draft_sizes(options));
}

Result<std::unique_ptr<Drafter>> ModelDrafter::create(Device& device, const Model& model,
                                                      const KvStorage& storage,
                                                      const ModelRunnerOptions& options) {
  HR_ASSIGN_OR_RETURN(auto pass, ModelPass::create(device, *options.draft, draft_sizes(options),
                                                   /*group=*/nullptr, options.hooks));
  const int32_t first = model.spec().layer_count;
  const LayerRange layers{first, first + options.draft->spec().layer_count};
  std::unique_ptr<ModelDrafter> drafter(
      new ModelDrafter(device, model, storage, layers, std::move(pass), options));
  if (options.draft_head) {
    const Shape shape = feature_shape(options);
    HR_ASSIGN_OR_RETURN(drafter->feature_rows_, device.allocate(*tensor_bytes(DType::kF32, shape)));
    drafter->feature_ = TensorView(drafter->feature_rows_.data(), DType::kF32, shape);
  }
  return std::unique_ptr<Drafter>(std::move(drafter));
}

ModelDrafter::ModelDrafter(Device& device, const Model& model, const KvStorage& storage,
                           LayerRange layers, std::unique_ptr<ModelPass> pass,
                           const ModelRunnerOptions& options)
    : Drafter(device, model, options),
      kv_(storage.layers().subspan(static_cast<size_t>(layers.first),
                                   static_cast<size_t>(layers.last - layers.first))),
      rows_max_(draft_sizes(options).tokens),
      builder_(storage.plan(), layers, /*keeps_rows=*/false),
      pass_(std::move(pass)),
      pages_(storage.plan(), layers, options.block_count, options.draft_head ? 1 : 0) {}

void ModelDrafter::draft(const SlotTable& slots, Sampler& sampler) {
  catch_up(slots);
  extend(slots, sampler);
}

// The first pass: all that is known and not computed, as far as there are rows.
void ModelDrafter::catch_up(const SlotTable& slots) {
  runs_.clear();
  in_pass_.clear();
  int32_t rows_left = rows_max_;
  for (const bool in_step : {true, false}) {
    for (Draft& draft : drafts_) {
      const int32_t behind = rows_of(draft) - pages_.computed(slots, draft.slot);
      if ((behind <= kInStep) == in_step && !draft.going) add_known(draft, slots, rows_left);
    }
  }
  if (!runs_.empty()) forward(slots);
}

// The last row is computed in any case: what follows it is asked. An id of padding that the draft
// does not have ends its drafts.
void ModelDrafter::add_known(Draft& draft, const SlotTable& slots, int32_t& rows_left) {
  const int32_t rows = rows_of(draft);
  const int32_t first = std::min(pages_.computed(slots, draft.slot), rows - 1);
  const int32_t count = std::min(rows - first, rows_left);
  if (count <= 0) return;
  const std::vector<TokenId>& tokens = slots[draft.slot].tokens;
  CHECK(std::ssize(tokens) == draft.known);
  const TokenSpan run = TokenSpan(tokens).subspan(static_cast<size_t>(first + draft.known - rows),
                                                  static_cast<size_t>(count));
  const int32_t vocabulary = pass_->model().spec().vocab_size;
  if (std::any_of(run.begin(), run.end(), [&](TokenId id) { return id >= vocabulary; })) return;
  if (is_head()) {
    features_->read(slots, draft.slot, first, feature_.row_range(rows_max_ - rows_left, count));
  }
  runs_.push_back({.slot = draft.slot, .first = first, .tokens = run});
  in_pass_.push_back(&draft);
  pages_.note(slots, draft.slot, first, first + count);
  rows_left -= count;
  draft.going = first + count == rows;
}

// Samples behind a pass and starts the next, until nobody goes on.
void ModelDrafter::extend(const SlotTable& slots, Sampler& sampler) {
  while (!runs_.empty()) {
    std::vector<LogitRow> rows;
    std::vector<Draft*> going;
    int32_t row = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      row += static_cast<int32_t>(runs_[i].tokens.size());
      Draft& draft = *in_pass_[i];
      if (!draft.going) continue;
      rows.push_back({.hidden_row = row - 1,
                      .sequence = draft.sequence,
                      .slot = draft.slot,
                      .samples = true,
                      .ahead = static_cast<int32_t>(draft.tokens.size())});
      going.push_back(&draft);
    }
    sample(going, rows, slots, sampler);
    runs_.clear();
    in_pass_.clear();
    for (size_t i = 0; i < going.size(); ++i) {
      Draft& draft = *going[i];
      if (!draft.going) continue;
      if (is_head()) {
        std::memcpy(f32_row(feature_, std::ssize(runs_)),
                    f32_row(pass_->hidden(), rows[i].hidden_row),
                    static_cast<size_t>(feature_.columns()) * sizeof(float));
      }
      runs_.push_back({.slot = draft.slot,
                       .first = rows_of(draft) + static_cast<int32_t>(draft.tokens.size()) - 1,
                       .tokens = TokenSpan(draft.tokens).last(1)});
      in_pass_.push_back(&draft);
    }
    pass_->end();
    if (!runs_.empty()) forward(slots);
  }
}

void ModelDrafter::forward(const SlotTable& slots) {
  ForwardBatch batch = builder_.build(runs_, slots);
  if (is_head()) batch.features = feature_.row_range(0, std::ssize(batch.tokens));
  pass_->forward(batch, kv_, {});
  ++drafting_.passes;
  drafting_.rows += static_cast<int32_t>(batch.tokens.size());
  for (Draft* draft : in_pass_) ++draft->passes;
}

// Of the last pass's token keys and values are there only where another pass followed.
void ModelDrafter::settled(const SlotTable& slots, const Draft& draft, int32_t right) {
  const int32_t computed = is_head() ? 0 : std::min(right, draft.passes - 1);
  if (computed > 0) pages_.note(slots, draft.slot, draft.known, draft.known + computed);
}

}  // namespace headrace
