#include "engine/drafter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "engine/host_draft_pass.h"
#include "engine/medusa_drafter.h"
#include "engine/model_drafter.h"

namespace headrace {
namespace {

// Of so many proposals that were verified fewer than this share are right: the draft is told of.
constexpr int64_t kTriedEnough = 100;
constexpr double kMostlyWrong = 0.05;

}  // namespace

LayerRange draft_layers(const Model& model, const ModelRunnerOptions& options) {
  const int32_t first = model.spec().layer_count;
  return {first, first + (options.draft == nullptr ? 0 : options.draft->spec().layer_count)};
}

Result<std::shared_ptr<const DraftFeatures>> create_features(Device& device, const Model& model,
                                                             const KvStorage& storage,
                                                             const ModelRunnerOptions& options) {
  if (!options.draft_head) return std::shared_ptr<const DraftFeatures>();
  const LayerRange layers{draft_layers(model, options).last,
                          static_cast<int32_t>(storage.layers().size())};
  HR_ASSIGN_OR_RETURN(DraftFeatures made,
                      DraftFeatures::create(device, {model, options.draft, *options.draft_head},
                                            storage, layers, options.max_num_batched_tokens));
  return std::make_shared<const DraftFeatures>(std::move(made));
}

int64_t Drafter::bytes(Device& device, const Model& model, const ModelRunnerOptions& options) {
  int64_t bytes = 0;
  if (options.draft_head) {
    bytes += DraftFeatures::bytes({model, options.draft, *options.draft_head},
                                  options.max_num_batched_tokens);
  }
  return bytes + (options.draft != nullptr ? HostDraftPass::bytes(device, model, options)
                                           : MedusaDrafter::bytes(device, model, options));
}

Result<std::unique_ptr<Drafter>> Drafter::create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<const DraftFeatures> features,
                      create_features(device, model, storage, options));
  if (options.draft == nullptr) {
    return MedusaDrafter::create(device, model, storage, options, std::move(features));
  }
  HR_ASSIGN_OR_RETURN(std::unique_ptr<DraftPass> pass,
                      HostDraftPass::create(device, model, storage, options, features.get()));
  return std::unique_ptr<Drafter>(std::make_unique<ModelDrafter>(
      model, storage, options, std::move(features), std::move(pass)));
}

const StepPlan& Drafter::propose(const StepPlan& plan, const SlotTable& slots) {
  begin_step(plan);
  DraftedStep& step = unsettled_.emplace_back();
  drafting_ = {};
  for (size_t i = 0; i < plan.work.size(); ++i) {
    const Work& work = plan.work[i];
    if (work.drafted == 0) continue;
    step.drafts.push_back({.work = i,
                           .sequence = work.sequence,
                           .slot = work.slot,
                           .known = slots[work.slot].length(),
                           .most = work.drafted});
  }
  if (step.drafts.empty()) return plan;
  const auto start = std::chrono::steady_clock::now();
  draft(step.drafts, slots);
  drafted_ = {.step = plan.step, .work = plan.work, .token_count = plan.token_count};
  for (const Draft& draft : step.drafts) {
    Work& work = drafted_.work[draft.work];
    const auto left_out = work.drafted - static_cast<int32_t>(draft.tokens.size());
    work.proposed.tokens = draft.tokens;
    work.drafted = 0;
    work.count -= left_out;
    drafted_.token_count -= left_out;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  drafting_.seconds = device_seconds().value_or(took.count());
  step.drafting = drafting_;
  return drafted_;
}

// Behind an end nothing follows. What a greedy answer gets is sure to the draft's own probability;
// what is drawn may be right however seldom it comes.
void Drafter::add(Draft& draft, const SampleResult& chosen, const SlotTable& slots) const {
  draft.going = !chosen.fault;
  if (chosen.fault) return;
  draft.tokens.push_back(chosen.token);
  const SamplingParams& sampling = slots[draft.slot].request->sampling;
  if (sampling.temperature == 0) draft.chance *= std::exp(chosen.logprob);
  const std::vector<TokenId>& ends = options_.end_ids;
  const bool is_end = std::find(ends.begin(), ends.end(), chosen.token) != ends.end();
  draft.going =
      std::ssize(draft.tokens) < draft.most && draft.chance >= options_.draft_chance_min && !is_end;
}

void Drafter::settle(const SlotTable& slots, StepResult& result) {
  CHECK(!unsettled_.empty());
  const DraftedStep step = std::move(unsettled_.front());
  unsettled_.pop_front();
  result.drafting = step.drafting;
  size_t at = 0;
  for (const Draft& draft : step.drafts) {
    while (at < result.rows.size() && result.rows[at].sequence != draft.sequence) ++at;
    CHECK(at < result.rows.size());
    StepResult::Row& row = result.rows[at];
    row.drafted = static_cast<int32_t>(draft.tokens.size());
    const int32_t accepted = static_cast<int32_t>(row.accepted.size()) - 1;
    if (draft.tokens.empty()) continue;
    settled(slots, draft, accepted);
    count(row.drafted, accepted);
  }
}

void Drafter::count(int32_t proposed, int32_t right) {
  tried_ += std::min(proposed, right + 1);
  right_ += right;
  if (told_ || tried_ < kTriedEnough) return;
  told_ = true;
  if (static_cast<double>(right_) >= kMostlyWrong * static_cast<double>(tried_)) return;
  log_warning(
      "draft {}: {} of {} proposed tokens were right, less than 5 %: answers are what they are "
      "without, and hardly sooner; take a draft that was made for this model, or none",
      options_.draft_name, right_, tried_);
}

}  // namespace headrace
