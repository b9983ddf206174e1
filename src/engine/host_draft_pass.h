// HostDraftPass: the passes of a draft model, or of a head of layers, on a CPU.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/draft_chooser.h"
#include "engine/draft_features.h"
#include "engine/draft_pass.h"
#include "engine/model_pass.h"
#include "engine/model_runner.h"

namespace headrace {

class HostDraftPass final : public DraftPass {
 public:
  static int64_t bytes(Device& device, const Model& model, const ModelRunnerOptions& options);
  // All but the options outlive it. `model` is the one that the draft proposes for; `features`: of
  // a head, else null.
  static Result<std::unique_ptr<DraftPass>> create(Device& device, const Model& model,
                                                   const KvStorage& storage,
                                                   const ModelRunnerOptions& options,
                                                   const DraftFeatures* features);

  OpContext context() override { return pass_->context(); }
  std::span<const SampleResult> run(std::span<const DraftRun> runs, std::span<const LogitRow> rows,
                                    const SlotTable& slots) override;
  void end() override { pass_->end(); }

 private:
  HostDraftPass(const KvStorage& storage, LayerRange layers, std::unique_ptr<ModelPass> pass,
                DraftChooser chooser, const DraftFeatures* features);
  void carry_features(std::span<const DraftRun> runs);

  const std::span<const KvLayerView> kv_;  // of its layers
  BatchBuilder builder_;
  std::unique_ptr<ModelPass> pass_;
  DraftChooser chooser_;
  const DraftFeatures* const features_;
  Buffer feature_rows_;  // [rows, D] of a head, in the order of the pass
  TensorView feature_;
  std::vector<TokenRun> runs_;
  std::vector<SampleResult> chosen_;
};

}  // namespace headrace
