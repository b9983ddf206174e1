// ModelDrafter: a model that proposes, or a head of layers that reads the hidden rows of the model
// it proposes for (EAGLE).
//
// Its layers lie behind the model's in the plan of keys and values, so that pages are both's. It
// runs over what is known of a sequence and it has not computed, samples at the last token, and
// goes on with what it has sampled, one pass a token. A draft that has much to catch up with does
// so over several steps and proposes nothing meanwhile.
//
// Row i of a model is token i. Row i of a head is token i + 1 beside the feature of token i
// (draft_features.h); the feature of a token that is only proposed is the hidden row that the head
// itself has made, so that what it computed of proposals is not kept. In a page that sequences
// share, the last row's token is the first behind the page: that of whoever computed it first.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/draft_pages.h"
#include "engine/drafter.h"

namespace headrace {

class ModelDrafter final : public Drafter {
 public:
  static int64_t pass_bytes(Device& device, const ModelRunnerOptions& options);
  // REQUIRES: options.draft. Else as of Drafter
  static Result<std::unique_ptr<Drafter>> create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options);

 private:
  ModelDrafter(Device& device, const Model& model, const KvStorage& storage, LayerRange layers,
               std::unique_ptr<ModelPass> pass, const ModelRunnerOptions& options);

  void begin_step(const StepPlan& plan) override { pages_.take(plan); }
  void draft(const SlotTable& slots, Sampler& sampler) override;
  void settled(const SlotTable& slots, const Draft& draft, int32_t right) override;
  TensorView logits(std::span<const LogitRow> rows) override { return pass_->logits(rows); }
  OpContext context() override { return pass_->context(); }

  bool is_head() const { return options_.draft_head.has_value(); }
  // How many of its rows there may be of a sequence's known tokens.
  int32_t rows_of(const Draft& draft) const { return draft.known - (is_head() ? 1 : 0); }
  void catch_up(const SlotTable& slots);
  void add_known(Draft& draft, const SlotTable& slots, int32_t& rows_left);
  void extend(const SlotTable& slots, Sampler& sampler);
  void forward(const SlotTable& slots);

  const std::span<const KvLayerView> kv_;  // of its layers
  const int32_t rows_max_;
  BatchBuilder builder_;
  std::unique_ptr<ModelPass> pass_;
  DraftPages pages_;
  std::vector<TokenRun> runs_;  // of a pass, in the order of `in_pass_`
  std::vector<Draft*> in_pass_;
  Buffer feature_rows_;  // [rows_max, D] of a head, in the order of the pass
  TensorView feature_;
};

}  // namespace headrace
