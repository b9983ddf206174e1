// ModelDrafter: a model that proposes, or a head of layers that reads the hidden rows of the model
// it proposes for (EAGLE), in chains or trees (draft_tree.h).
//
// Its layers lie behind the model's in the plan of keys and values, so that pages are both's. It
// runs over what is known of a sequence and it has not computed, samples at the last token, and
// goes on with what it has sampled, one pass a token, of a tree with several tokens. These lie
// behind the known ones in the order in which they are computed; what the model accepts of them is
// moved to the places of a chain. A draft that has much to catch up with does so over several steps
// and proposes nothing meanwhile.
//
// Row i of a model is token i. Row i of a head is token i + 1 beside the feature of token i
// (draft_features.h); the feature of a token that is only proposed is the hidden row that the head
// itself has made, so that what it computed of proposals is not kept. In a page that sequences
// share, the last row's token is the first behind the page: that of whoever computed it first.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/draft_pages.h"
#include "engine/drafter.h"

namespace headrace {

// Rows of a draft's pass.
int32_t draft_rows_max(const ModelRunnerOptions& options);

class ModelDrafter final : public Drafter {
 public:
  // `model` is the one that it proposes for; `features`: of a head, else null.
  ModelDrafter(const Model& model, const KvStorage& storage, const ModelRunnerOptions& options,
               std::shared_ptr<const DraftFeatures> features, std::unique_ptr<DraftPass> pass);

  const DraftFeatures* features() const override { return features_.get(); }

 private:
  OpContext context() override { return pass_->context(); }
  void begin_step(const StepPlan& plan) override { pages_.take(plan); }
  void draft(std::span<Draft> drafts, const SlotTable& slots) override;
  void settled(const SlotTable& slots, const Draft& draft, std::span<const TokenId> right) override;
  std::optional<double> device_seconds() override { return pass_->device_seconds(); }

  // Of a run of a pass: whose it is, its last token in the draft's tree, and that token's row.
  struct InPass {
    Draft* draft = nullptr;
    int32_t token = TokenTree::kBeforeAll;
    int32_t row = 0;
  };

  bool is_head() const { return options_.draft_head.has_value(); }
  // How many of its rows there may be of a sequence's known tokens.
  int32_t rows_of(const Draft& draft) const { return draft.known - (is_head() ? 1 : 0); }
  void catch_up(std::span<Draft> drafts, const SlotTable& slots);
  void add_known(Draft& draft, const SlotTable& slots, int32_t& rows_left);
  void run(const SlotTable& slots);
  void go_on(std::span<const InPass> asked);

  const std::shared_ptr<const DraftFeatures> features_;
  const std::unique_ptr<DraftPass> pass_;
  const KvStorage& storage_;
  const LayerRange layers_;  // of the storage, the draft's
  DraftPages pages_;
  std::vector<DraftRun> runs_;   // of a pass
  std::vector<InPass> in_pass_;  // [runs_]
};

}  // namespace headrace
