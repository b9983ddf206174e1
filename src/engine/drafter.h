// Drafter: what proposes the tokens of a step's work (Work::drafted), on a CPU: a model
// (model_drafter.h) or heads on the model (medusa_drafter.h). It samples with the parameters and
// the random number of each place, all sequences of a step together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/draft_features.h"
#include "engine/kv_storage.h"
#include "engine/model_pass.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/slot_table.h"

namespace headrace {

class Drafter {
 public:
  // Of memory beside the draft's weights.
  static int64_t bytes(Device& device, const Model& model, const ModelRunnerOptions& options);
  // All outlive it; `model` is the one that it proposes for. REQUIRES: options.has_draft(); the
  // storage's plan is one of kept_spec()
  static Result<std::unique_ptr<Drafter>> create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options);
  virtual ~Drafter() = default;

  // The plan's work, whose drafted tokens are proposed ones, as many as there are; valid until the
  // next call. REQUIRES: slots.update(plan) was called, and the plan's pages are copied
  const StepPlan& propose(const StepPlan& plan, const SlotTable& slots, Sampler& sampler);
  // Where the model's pass over that work leaves rows for it, and then, that it has.
  LayerTaps taps() const { return features_ ? features_->taps() : LayerTaps(); }
  void keep_features(const StepPlan& plan, const SlotTable& slots) {
    if (!features_) return;
    OpContext op = context();
    features_->keep(op, plan, slots);
  }
  // The step's result says what was accepted: it is told what was proposed.
  void settle(const SlotTable& slots, StepResult& result);

 protected:
  // Of a work that is to be drafted.
  struct Draft {
    size_t work = 0;
    SequenceId sequence;
    SlotId slot;
    int32_t known = 0;  // tokens of its sequence
    int32_t most = 0;
    std::vector<TokenId> tokens{};
    int32_t passes = 0;
    double chance = 1;  // that all its tokens are right
    bool going = false;
  };
  Drafter(Device& device, const Model& model, const ModelRunnerOptions& options);
  Status create_features(const Model* head, const KvStorage& storage, int32_t layer_first);

  // Of all works that are to be drafted, none of which is `going`: makes their tokens.
  virtual void draft(const SlotTable& slots, Sampler& sampler) = 0;
  virtual void begin_step(const StepPlan& /*plan*/) {}
  // The first `right` tokens of the draft were.
  virtual void settled(const SlotTable& /*slots*/, const Draft& /*draft*/, int32_t /*right*/) {}
  // The rows' logits, to the end of a Mark of the context's workspace.
  virtual TensorView logits(std::span<const LogitRow> rows) = 0;
  virtual OpContext context() = 0;

  // Samples each draft's next token.
  void sample(std::span<Draft*> drafts, std::span<const LogitRow> rows, const SlotTable& slots,
              Sampler& sampler);

  Device& device_;
  const Model& model_;
  const ModelRunnerOptions options_;
  std::optional<DraftFeatures> features_;  // of heads
  std::vector<Draft> drafts_;              // of a step
  StepResult::Drafting drafting_;

 private:
  void add(Draft& draft, const SampleResult& sampled, const SamplingParams& sampling) const;
  TensorView over_all_ids(const TensorView& logits);
  void count(int32_t proposed, int32_t right);

  StepPlan drafted_;
  Buffer all_logits_;   // [kLogitRowsMax, V], where a head has ids of its own
  Workspace choosing_;  // with which these are sampled
  int64_t tried_ = 0, right_ = 0;
  bool told_ = false;  // that it is mostly wrong
};

}  // namespace headrace
