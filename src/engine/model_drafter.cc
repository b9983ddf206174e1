#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

// A draft that has no more to catch up with goes before those that have: they leave it no rows.
constexpr int32_t kInStep = 16;

}  // namespace

int32_t draft_rows_max(const ModelRunnerOptions& options) {
  return std::max(options.max_num_batched_tokens, options.max_num_seqs);
}

ModelDrafter::ModelDrafter(const Model& model, const KvStorage& storage,
                           const ModelRunnerOptions& options,
                           std::shared_ptr<const DraftFeatures> features,
                           std::unique_ptr<DraftPass> pass)
    : Drafter(options),
      features_(std::move(features)),
      pass_(std::move(pass)),
      pages_(storage.plan(), draft_layers(model, options), options.block_count,
             options.draft_head ? 1 : 0) {}

void ModelDrafter::draft(std::span<Draft> drafts, const SlotTable& slots) {
  pass_->begin();
  catch_up(drafts, slots);
  while (!runs_.empty()) run(slots);
  pass_->end();
}

// The first pass: all that is known and not computed, as far as there are rows.
void ModelDrafter::catch_up(std::span<Draft> drafts, const SlotTable& slots) {
  runs_.clear();
  in_pass_.clear();
  int32_t rows_left = draft_rows_max(options_);
  for (const bool in_step : {true, false}) {
    for (Draft& draft : drafts) {
      const int32_t behind = rows_of(draft) - pages_.computed(slots, draft.slot);
      if ((behind <= kInStep) == in_step && !draft.going) add_known(draft, slots, rows_left);
    }
  }
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
  const int32_t vocabulary = options_.draft->spec().vocab_size;
  if (std::any_of(run.begin(), run.end(), [&](TokenId id) { return id >= vocabulary; })) return;
  runs_.push_back({.tokens = {.slot = draft.slot, .first = first, .tokens = run}});
  in_pass_.push_back(&draft);
  pages_.note(slots, draft.slot, first, first + count);
  rows_left -= count;
  draft.going = first + count == rows;
}

// A pass, and what the next one has to compute: the tokens chosen here of those that go on.
void ModelDrafter::run(const SlotTable& slots) {
  std::vector<LogitRow> rows;
  std::vector<Draft*> going;
  int32_t row = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    row += static_cast<int32_t>(runs_[i].tokens.tokens.size());
    Draft& draft = *in_pass_[i];
    ++draft.passes;
    if (!draft.going) continue;
    rows.push_back({.hidden_row = row - 1,
                    .sequence = draft.sequence,
                    .slot = draft.slot,
                    .samples = true,
                    .ahead = static_cast<int32_t>(draft.tokens.size())});
    going.push_back(&draft);
  }
  const std::span<const SampleResult> chosen = pass_->run(runs_, rows, slots);
  ++drafting_.passes;
  drafting_.rows += row;
  runs_.clear();
  in_pass_.clear();
  for (size_t i = 0; i < going.size(); ++i) {
    Draft& draft = *going[i];
    add(draft, chosen[i], slots);
    if (!draft.going) continue;
    const TokenRun next{.slot = draft.slot,
                        .first = rows_of(draft) + static_cast<int32_t>(draft.tokens.size()) - 1,
                        .tokens = TokenSpan(draft.tokens).last(1)};
    runs_.push_back({.tokens = next, .feature_row = is_head() ? rows[i].hidden_row : -1});
    in_pass_.push_back(&draft);
  }
}

// Of the last pass's token keys and values are there only where another pass followed.
void ModelDrafter::settled(const SlotTable& slots, const Draft& draft, int32_t right) {
  const int32_t computed = is_head() ? 0 : std::min(right, draft.passes - 1);
  if (computed > 0) pages_.note(slots, draft.slot, draft.known, draft.known + computed);
}

}  // namespace headrace
