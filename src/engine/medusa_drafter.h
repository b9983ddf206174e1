// MedusaDrafter: the top token of each of a model's Medusa heads, as a chain, or several of each,
// as a tree. They all read the hidden row of the last token but one, which the step before has
// computed: what the model's own head said of it is known. No head sees what another proposes, so
// that behind each token of a tree stand the same.
#pragma once

#include <memory>
#include <span>

#include "engine/draft_chooser.h"
#include "engine/drafter.h"

namespace headrace {

// On a CPU.
class MedusaDrafter final : public Drafter {
 public:
  static int64_t bytes(Device& device, const Model& model, const ModelRunnerOptions& options);
  // REQUIRES: options.draft_head->medusa. Else as of Drafter
  static Result<std::unique_ptr<Drafter>> create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options,
                                                 std::shared_ptr<const DraftFeatures> features);

  const DraftFeatures* features() const override { return features_.get(); }

 private:
  MedusaDrafter(Device& device, const KvStorage& storage, const ModelRunnerOptions& options,
                std::shared_ptr<const DraftFeatures> features, DraftChooser chooser);

  void draft(std::span<Draft> drafts, const SlotTable& slots) override;
  void load_rows(std::span<Draft> drafts, const SlotTable& slots);
  void choose(std::span<Draft*> drafts, std::span<const LogitRow> rows, const SlotTable& slots);
  LogitRow row_of(const Draft& draft, int32_t hidden_row) const;
  TensorView logits(std::span<const LogitRow> rows);
  OpContext context() override { return {device_, *stream_, workspace_, mesh_, options_.hooks}; }
  const MedusaHeads& heads() const { return *options_.draft_head->medusa; }

  Device& device_;
  const std::shared_ptr<const DraftFeatures> features_;
  const std::unique_ptr<Stream> stream_;
  DraftChooser chooser_;
  BatchBuilder builder_;  // which says where rows lie in pages
  SingleRank no_others_;
  Mesh mesh_{&no_others_, &no_others_, &no_others_};
  Workspace workspace_;
  Buffer rows_;       // [max_num_seqs, D]
  TensorView row_;    // of each draft, in their order
  int32_t head_ = 0;  // that is asked
};

}  // namespace headrace
