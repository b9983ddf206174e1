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
                           .tree = tree_of(work, slots[work.slot])});
  }
  if (step.drafts.empty()) return plan;
  const auto start = std::chrono::steady_clock::now();
  draft(step.drafts, slots);
  drafted_ = {.step = plan.step, .work = plan.work, .token_count = plan.token_count};
  for (Draft& draft : step.drafts) {
    Work& work = drafted_.work[draft.work];
    work.proposed = draft.tree.propose();
    const int32_t left_out = work.drafted - work.proposed.size();
    work.drafted = 0;
    work.count -= left_out;
    drafted_.token_count -= left_out;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  drafting_.seconds = device_seconds().value_or(took.count());
  step.drafting = drafting_;
  return drafted_;
}

// What a greedy answer gets is sure to the draft's own probability; what is drawn may be right
// however seldom it comes.
DraftTree Drafter::tree_of(const Work& work, const Slot& slot) const {
  DraftForm form = work.form;
  if (form.is_chain()) form = {.depth = work.drafted};
  const bool greedy = slot.request->sampling.temperature == 0;
  return {std::move(form), work.drafted, greedy ? options_.draft_chance_min : 0};
}

LogitRow Drafter::row_behind(const Draft& draft, int32_t before, int32_t hidden_row) const {
  const int32_t wanted = draft.tree.wanted(before);
  return {.hidden_row = hidden_row,
          .sequence = draft.sequence,
          .slot = draft.slot,
          .samples = true,
          .ahead = before < 0 ? 0 : draft.tree.depth(before) + 1,
          .alternatives = wanted > 1 ? wanted : 0};
}

// First what was chosen, as the model would choose, then what is likeliest beside it. Of a drawn
// answer the model draws with the same random number, so that the first is right more often than
// its probability says; what is left is the others', by theirs.
void Drafter::add(Draft& draft, int32_t before, const SampleResult& chosen,
                  const SlotTable& slots) const {
  if (chosen.fault) return;
  const double own = std::exp(chosen.logprob);
  const bool greedy = slots[draft.slot].request->sampling.temperature == 0;
  const double of_others = greedy ? 1 : (1 - drawn_right_) / std::max(1 - own, 1e-6);
  std::vector<DraftTree::Candidate> candidates;
  const auto add_candidate = [&](TokenId token, double chance) {
    const bool ends = std::ranges::find(options_.end_ids, token) != options_.end_ids.end();
    candidates.push_back({.token = token, .chance = std::min(chance, 1.0), .ends = ends});
  };
  add_candidate(chosen.token, greedy ? own : drawn_right_);
  for (const TokenLogprob& other : chosen.top) {
    if (other.token == chosen.token || !std::isfinite(other.logprob)) continue;
    add_candidate(other.token, of_others * std::exp(other.logprob));
  }
  draft.tree.add(before, candidates);
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
    row.drafted = draft.tree.proposed();
    if (row.drafted.empty() || row.accepted.empty()) continue;
    const std::vector<TokenId> right(row.accepted.begin(), row.accepted.end() - 1);
    settled(slots, draft, right);
    count(draft, right, slots[draft.slot].request->sampling.temperature != 0);
  }
}

void Drafter::count(const Draft& draft, std::span<const TokenId> right, bool drawn) {
  constexpr double kLearning = 1.0 / 64;
  const TokenTree& proposed = draft.tree.proposed();
  int32_t last = TokenTree::kBeforeAll;
  const auto learn = [&](bool first_is_right) {
    if (drawn) drawn_right_ += kLearning * ((first_is_right ? 1.0 : 0.0) - drawn_right_);
  };
  for (const TokenId token : right) {
    last = proposed.child(last, token);
    learn(draft.tree.is_first(last));
  }
  const bool one_was_wrong = proposed.goes_on(last);
  if (one_was_wrong) learn(false);
  tried_ += std::ssize(right) + (one_was_wrong ? 1 : 0);
  right_ += std::ssize(right);
  if (told_ || tried_ < kTriedEnough) return;
  told_ = true;
  if (static_cast<double>(right_) >= kMostlyWrong * static_cast<double>(tried_)) return;
  log_warning(
      "draft {}: {} of {} proposed tokens were right, less than 5 %: answers are what they are "
      "without, and hardly sooner; take a draft that was made for this model, or none",
      options_.draft_name, right_, tried_);
}

}  // namespace headrace
