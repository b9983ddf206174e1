// Drafter: a draft model that proposes the tokens of a step's work (Work::drafted), on a CPU.
//
// Its layers lie behind the model's in the plan of keys and values, so that pages are both's. It
// runs over what is known of a sequence and it has not computed, samples at the last token with
// the parameters and the random number of that place, and goes on with what it has sampled, one
// pass a token, all sequences of the step together. A draft that has much to catch up with does so
// over several steps and proposes nothing meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/draft_pages.h"
#include "engine/kv_storage.h"
#include "engine/model_pass.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/slot_table.h"

namespace headrace {

class Drafter {
 public:
  static int64_t workspace_bytes(Device& device, const ModelRunnerOptions& options);
  // All outlive it. REQUIRES: options.draft; the storage's plan is one with its layers at the end
  static Result<std::unique_ptr<Drafter>> create(Device& device, const KvStorage& storage,
                                                 const ModelRunnerOptions& options);

  // The plan's work, whose drafted tokens are proposed ones, as many as there are; valid until the
  // next call. REQUIRES: slots.update(plan) was called, and the plan's pages are copied
  const StepPlan& propose(const StepPlan& plan, const SlotTable& slots, Sampler& sampler);
  // The step's result says what was accepted: it is told what was proposed.
  void settle(const SlotTable& slots, StepResult& result);

 private:
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
  Drafter(const KvStorage& storage, LayerRange layers, std::unique_ptr<ModelPass> pass,
          const ModelRunnerOptions& options);

  void catch_up(const SlotTable& slots);
  void add_known(Draft& draft, const SlotTable& slots, int32_t& rows_left);
  void extend(const SlotTable& slots, Sampler& sampler);
  void sample(std::span<Draft*> drafts, std::span<const LogitRow> rows, const SlotTable& slots,
              Sampler& sampler);
  void add(Draft& draft, const SampleResult& sampled, const SamplingParams& sampling) const;
  void forward(const SlotTable& slots);

  const std::span<const KvLayerView> kv_;  // of its layers
  const int32_t rows_max_;
  const double chance_min_;
  const std::vector<TokenId> end_ids_;
  BatchBuilder builder_;
  std::unique_ptr<ModelPass> pass_;
  DraftPages pages_;
  std::vector<Draft> drafts_;   // of a step
  std::vector<TokenRun> runs_;  // of a pass, in the order of `in_pass_`
  std::vector<Draft*> in_pass_;
  StepPlan drafted_;
  StepResult::Drafting drafting_;
};

}  // namespace headrace
