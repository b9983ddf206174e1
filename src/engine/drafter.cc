#include "engine/drafter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/log.h"
#include "engine/medusa_drafter.h"
#include "engine/model_drafter.h"
#include "ops/sampling/sample.h"

namespace headrace {
namespace {

// Of so many proposals that were verified fewer than this share are right: the draft is told of.
constexpr int64_t kTriedEnough = 100;
constexpr double kMostlyWrong = 0.05;

bool has_own_ids(const ModelRunnerOptions& options) {
  return options.draft_head && !options.draft_head->tokens.empty();
}

int64_t choosing_bytes(Device& device, const Model& model) {
  return sample_workspace_bytes(device.pool().thread_count(), model.spec().vocab_size) + 4096;
}

int64_t all_logits_bytes(const Model& model) {
  return kLogitRowsMax * int64_t{model.spec().vocab_size} * int64_t{sizeof(float)};
}

}  // namespace

int64_t Drafter::bytes(Device& device, const Model& model, const ModelRunnerOptions& options) {
  int64_t bytes = 0;
  if (options.draft_head) {
    bytes += DraftFeatures::bytes({model, options.draft, *options.draft_head},
                                  options.max_num_batched_tokens);
  }
  if (has_own_ids(options)) bytes += choosing_bytes(device, model) + all_logits_bytes(model);
  return bytes + (options.draft != nullptr ? ModelDrafter::pass_bytes(device, options)
                                           : MedusaDrafter::pass_bytes(device, options));
}

Result<std::unique_ptr<Drafter>> Drafter::create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options) {
  std::unique_ptr<Drafter> drafter;
  const int32_t model_layers = model.spec().layer_count;
  if (options.draft != nullptr) {
    HR_ASSIGN_OR_RETURN(drafter, ModelDrafter::create(device, model, storage, options));
  } else {
    HR_ASSIGN_OR_RETURN(drafter, MedusaDrafter::create(device, model, options));
  }
  if (options.draft_head) {
    const int32_t own = options.draft == nullptr ? 0 : options.draft->spec().layer_count;
    HR_RETURN_IF_ERROR(drafter->create_features(options.draft, storage, model_layers + own));
  }
  if (has_own_ids(options)) {
    HR_ASSIGN_OR_RETURN(drafter->all_logits_, device.allocate(all_logits_bytes(model)));
    HR_ASSIGN_OR_RETURN(Buffer choosing, device.allocate(choosing_bytes(device, model)));
    drafter->choosing_ = Workspace(std::move(choosing));
  }
  return drafter;
}

Drafter::Drafter(Device& device, const Model& model, const ModelRunnerOptions& options)
    : device_(device), model_(model), options_(options) {}

Status Drafter::create_features(const Model* head, const KvStorage& storage, int32_t layer_first) {
  const auto layers = static_cast<int32_t>(storage.layers().size());
  HR_ASSIGN_OR_RETURN(
      DraftFeatures features,
      DraftFeatures::create(device_, {model_, head, *options_.draft_head}, storage,
                            {layer_first, layers}, options_.max_num_batched_tokens));
  features_.emplace(std::move(features));
  return ok_status();
}

const StepPlan& Drafter::propose(const StepPlan& plan, const SlotTable& slots, Sampler& sampler) {
  begin_step(plan);
  drafts_.clear();
  drafting_ = {};
  for (size_t i = 0; i < plan.work.size(); ++i) {
    const Work& work = plan.work[i];
    if (work.drafted == 0) continue;
    drafts_.push_back({.work = i,
                       .sequence = work.sequence,
                       .slot = work.slot,
                       .known = slots[work.slot].length(),
                       .most = work.drafted});
  }
  if (drafts_.empty()) return plan;
  const auto start = std::chrono::steady_clock::now();
  draft(slots, sampler);
  drafted_ = {.step = plan.step, .work = plan.work, .token_count = plan.token_count};
  for (Draft& draft : drafts_) {
    Work& work = drafted_.work[draft.work];
    const auto left_out = work.drafted - static_cast<int32_t>(draft.tokens.size());
    work.proposed = draft.tokens;
    work.drafted = 0;
    work.count -= left_out;
    drafted_.token_count -= left_out;
  }
  drafting_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return drafted_;
}

void Drafter::sample(std::span<Draft*> drafts, std::span<const LogitRow> rows,
                     const SlotTable& slots, Sampler& sampler) {
  for (size_t first = 0; first < rows.size(); first += kLogitRowsMax) {
    const size_t count = std::min<size_t>(kLogitRowsMax, rows.size() - first);
    const auto part = rows.subspan(first, count);
    OpContext op = context();
    const Workspace::Mark mark(op.workspace);
    const TensorView own = logits(part);
    std::span<const SampleResult> sampled;
    if (has_own_ids(options_)) {
      OpContext choosing{device_, op.stream, choosing_, op.mesh, op.hooks};
      sampled = sampler.propose(choosing, part, over_all_ids(own), slots);
    } else {
      sampled = sampler.propose(op, part, own, slots);
    }
    for (size_t i = 0; i < count; ++i) {
      Draft& draft = *drafts[first + i];
      add(draft, sampled[i], slots[draft.slot].request->sampling);
    }
  }
}

// The ids that the head has no logits of cannot come.
TensorView Drafter::over_all_ids(const TensorView& logits) {
  const TensorView all(all_logits_.data(), DType::kF32,
                       Shape{logits.rows(), model_.spec().vocab_size});
  const std::vector<TokenId>& ids = options_.draft_head->tokens;
  for (int64_t row = 0; row < logits.rows(); ++row) {
    float* const to = f32_row(all, row);
    const float* const from = f32_row(logits, row);
    std::fill_n(to, all.columns(), -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < logits.columns(); ++i) to[ids[static_cast<size_t>(i)]] = from[i];
  }
  return all;
}

// Behind an end nothing follows. What a greedy answer gets is sure to the draft's own probability;
// what is drawn may be right however seldom it comes.
void Drafter::add(Draft& draft, const SampleResult& sampled, const SamplingParams& sampling) const {
  draft.going = !sampled.fault;
  if (sampled.fault) return;
  draft.tokens.push_back(sampled.token);
  if (sampling.temperature == 0) draft.chance *= std::exp(sampled.logprob);
  const std::vector<TokenId>& ends = options_.end_ids;
  const bool is_end = std::find(ends.begin(), ends.end(), sampled.token) != ends.end();
  draft.going =
      std::ssize(draft.tokens) < draft.most && draft.chance >= options_.draft_chance_min && !is_end;
}

void Drafter::settle(const SlotTable& slots, StepResult& result) {
  result.drafting = std::exchange(drafting_, {});
  size_t at = 0;
  for (const Draft& draft : drafts_) {
    while (at < result.rows.size() && result.rows[at].sequence != draft.sequence) ++at;
    CHECK(at < result.rows.size());
    StepResult::Row& row = result.rows[at];
    row.drafted = static_cast<int32_t>(draft.tokens.size());
    const int32_t accepted = static_cast<int32_t>(row.accepted.size()) - 1;
    if (draft.tokens.empty()) continue;
    settled(slots, draft, accepted);
    count(row.drafted, accepted);
  }
  drafts_.clear();
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
