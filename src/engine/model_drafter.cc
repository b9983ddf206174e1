#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/token_moves.h"

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
      storage_(storage),
      layers_(draft_layers(model, options)),
      pages_(storage.plan(), layers_, options.block_count, options.draft_head ? 1 : 0) {}

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
      if ((behind <= kInStep) == in_step && !draft.begun) add_known(draft, slots, rows_left);
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
  in_pass_.push_back({.draft = &draft});
  pages_.note(slots, draft.slot, first, first + count);
  rows_left -= count;
  draft.begun = first + count == rows;
}

// A pass, and what the next one has to compute.
void ModelDrafter::run(const SlotTable& slots) {
  std::vector<LogitRow> rows;
  std::vector<InPass> asked;
  int32_t row = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    row += static_cast<int32_t>(runs_[i].tokens.tokens.size());
    in_pass_[i].row = row - 1;
    const auto& [draft, token, last] = in_pass_[i];
    if (!draft->begun) continue;
    asked.push_back(in_pass_[i]);
    rows.push_back(row_behind(*draft, token, last));
  }
  const std::span<const SampleResult> chosen = pass_->run(runs_, rows, slots);
  ++drafting_.passes;
  drafting_.rows += row;
  for (size_t i = 0; i < asked.size(); ++i) add(*asked[i].draft, asked[i].token, chosen[i], slots);
  runs_.clear();
  in_pass_.clear();
  for (size_t first = 0; first < asked.size();) {
    size_t last = first + 1;
    while (last < asked.size() && asked[last].draft == asked[first].draft) ++last;
    go_on(std::span(asked).subspan(first, last - first));
    first = last;
  }
}

// The tokens that go on of those that were asked for behind a draft's rows of a pass.
void ModelDrafter::go_on(std::span<const InPass> asked) {
  Draft& draft = *asked.front().draft;
  draft.going = draft.tree.go_on();
  for (const int32_t token : draft.going) {
    const int32_t place = draft.tree.computed(token);
    const TokenRun run{.slot = draft.slot,
                       .first = rows_of(draft) + place,
                       .tokens = draft.tree.token(token),
                       .paths = draft.tree.paths(place)};
    const auto before = std::ranges::find(asked, draft.tree.parent(token), &InPass::token);
    CHECK(before != asked.end());
    runs_.push_back({.tokens = run, .feature_row = is_head() ? before->row : -1});
    in_pass_.push_back({.draft = &draft, .token = token});
  }
}

// What the draft computed of tokens that were right it keeps, where a chain has it. (A head has
// computed it from rows of its own.)
void ModelDrafter::settled(const SlotTable& slots, const Draft& draft,
                           std::span<const TokenId> right) {
  if (is_head()) return;
  const std::vector<int32_t> path = draft.tree.computed_path(right);
  const auto count = static_cast<int32_t>(path.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t place = path[static_cast<size_t>(i)];
    if (place == i) continue;
    move_token(storage_, slots,
               {.slot = draft.slot, .from = draft.known + place, .to = draft.known + i}, layers_);
  }
  if (count > 0) pages_.note(slots, draft.slot, draft.known, draft.known + count);
}

}  // namespace headrace
