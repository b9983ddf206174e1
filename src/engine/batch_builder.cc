#include "engine/batch_builder.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headrace {

BatchBuilder::BatchBuilder(const KvPlan& plan, LayerRange layers, bool keeps_rows)
    : plan_(plan),
      layer_group_(std::span(plan.layer_group)
                       .subspan(static_cast<size_t>(layers.first),
                                static_cast<size_t>(layers.last - layers.first))),
      keeps_rows_(keeps_rows),
      in_use_(plan.groups.size(), false) {
  for (const int32_t group : layer_group_) {
    if (!plan.groups.empty()) in_use_[static_cast<size_t>(group)] = true;
  }
}

void BatchBuilder::place_too(LayerRange layers) {
  for (int32_t layer = layers.first; layer < layers.last; ++layer) {
    in_use_[static_cast<size_t>(plan_.layer_group[static_cast<size_t>(layer)])] = true;
  }
}

ForwardBatch BatchBuilder::build(const StepPlan& plan, const SlotTable& slots,
                                 Attending attending) {
  size_t rows = 0, proposed = 0;
  for (const Work& work : plan.work) {
    rows += static_cast<size_t>(work.count);
    proposed += work.proposed.tokens.size();
  }
  begin(rows);
  paths_.reserve(proposed);  // sequences point to them
  for (const Work& work : plan.work) {
    const Slot& slot = slots[work.slot];
    const auto row_first = static_cast<int32_t>(tokens_.size());
    const Place place{.slot = work.slot, .first = work.first, .count = work.count};
    set_slots(place, slots);
    add_sequences(place, attending, slots);
    if (!work.proposed.is_chain()) {
      CHECK_MSG(attending == Attending::kTogether, "rows of a tree attend together");
      add_tree(work.proposed);
    }
    add_tokens(work, slot);
    add_adapter_rows(slot, row_first, work.count);
    add_logit_rows(work, slot, row_first);
  }
  fill_groups(slots.group_stride());
  ForwardBatch built = batch();
  built.kept = keep_rows(plan);
  built.adapters.rows = adapters_;
  return built;
}

namespace {

// Of the run's first token.
int32_t first_position(const TokenRun& run) {
  if (run.paths.empty()) return run.first;
  return run.first + 1 - static_cast<int32_t>(run.paths.size()) + std::popcount(run.paths.back()) -
         1;
}

}  // namespace

ForwardBatch BatchBuilder::build(std::span<const TokenRun> runs, const SlotTable& slots) {
  size_t rows = 0;
  for (const TokenRun& run : runs) rows += run.tokens.size();
  begin(rows);
  for (const TokenRun& run : runs) {
    const auto count = static_cast<int32_t>(run.tokens.size());
    const Place place{.slot = run.slot, .first = run.first, .count = count};
    set_slots(place, slots);
    add_sequences(place, Attending::kTogether, slots);
    const int32_t position = first_position(run);
    if (!run.paths.empty()) {
      CHECK(count == 1);
      add_paths(run.paths.data(), static_cast<int32_t>(run.paths.size()));
    }
    for (int32_t k = 0; k < count; ++k) {
      tokens_.push_back(run.tokens[static_cast<size_t>(k)]);
      positions_.push_back(position + k);
    }
  }
  fill_groups(slots.group_stride());
  return batch();
}

ForwardBatch BatchBuilder::batch() const {
  return {
      .tokens = tokens_, .positions = positions_, .groups = groups_, .layer_group = layer_group_};
}

void BatchBuilder::begin(size_t rows) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  paths_.clear();
  adapters_.clear();
  slots_.resize(plan_.groups.size());
  sequences_.resize(plan_.kinds.size());
  for (auto& slots_of_group : slots_) slots_of_group.resize(rows);
  for (auto& sequences_of_kind : sequences_) sequences_of_kind.clear();
  sequence_slots_.clear();
}

void BatchBuilder::add_adapter_rows(const Slot& slot, int32_t row_first, int32_t count) {
  const auto* const adapter = static_cast<const LoraAdapter*>(slot.request->adapter_weights.get());
  if (adapter == nullptr) return;
  auto at = std::ranges::find(adapters_, adapter, &AdapterRows::adapter);
  if (at == adapters_.end()) at = adapters_.insert(at, {adapter, {}});
  for (int32_t row = row_first; row < row_first + count; ++row) at->rows.push_back(row);
}

// Groups of one kind have the sequences in common, with the tables of the kind's first.
void BatchBuilder::fill_groups(int32_t group_stride) {
  groups_.clear();
  for (size_t kind = 0; kind < plan_.kinds.size(); ++kind) {
    for (int32_t i = 0; i < plan_.kinds[kind].group_count; ++i) {
      groups_.push_back({.slots = slots_[groups_.size()],
                         .sequences = sequences_[kind],
                         .table_offset = i * group_stride});
    }
  }
}

const ForwardBatch::KeptRows* BatchBuilder::keep_rows(const StepPlan& plan) {
  if (!keeps_rows_ || 2 * logit_rows_.size() > tokens_.size()) return nullptr;
  for (const Work& work : plan.work) {
    const bool one_row = work.rows == LogitRows::kNone || work.rows == LogitRows::kLast;
    if (!one_row || !work.also_sample.empty()) return nullptr;
  }
  ForwardBatch::Group group = groups_[static_cast<size_t>(layer_group_.back())];
  kept_rows_.clear();
  kept_sequences_.clear();
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (!plan.work[i].samples) continue;
    AttentionSequence last = group.sequences[i];
    const auto kept = static_cast<int32_t>(kept_rows_.size());
    kept_rows_.push_back(std::exchange(logit_rows_[kept_rows_.size()].hidden_row, kept));
    last.row_first = kept;
    last.row_count = 1;
    kept_sequences_.push_back(last);
  }
  group.slots = {};
  group.sequences = kept_sequences_;
  kept_ = {.rows = kept_rows_, .group = group};
  return &kept_;
}

void BatchBuilder::add_tokens(const Work& work, const Slot& slot) {
  CHECK(work.first >= 0 && work.count > 0);
  const int32_t known_end = work.first + work.count - work.proposed.size();
  CHECK(known_end <= slot.length());
  for (int32_t position = work.first; position < known_end; ++position) {
    const bool known = static_cast<size_t>(position) < slot.tokens.size();
    // Of the tokens in flight a step computes none but the last: the slot's.
    CHECK(known || position + 1 == slot.length());
    tokens_.push_back(known ? slot.tokens[static_cast<size_t>(position)]
                            : token_of_slot(work.slot));
    positions_.push_back(position);
  }
  for (int32_t i = 0; i < work.proposed.size(); ++i) {
    tokens_.push_back(work.proposed.token(i));
    positions_.push_back(known_end + work.proposed.depth(i));
  }
}

// Block by block, of which all groups have one at the same place.
void BatchBuilder::set_slots(const Place& place, const SlotTable& tables) {
  const int32_t block_tokens = plan_.block_tokens, end = place.first + place.count;
  size_t row = tokens_.size();
  for (int32_t first = place.first; first < end;) {
    const auto index = static_cast<size_t>(first / block_tokens);
    const int32_t offset = first % block_tokens;
    const int32_t count = std::min(end - first, block_tokens - offset);
    for (size_t group = 0; group < slots_.size(); ++group) {
      if (!in_use_[group]) continue;
      const auto table = tables.block_table(place.slot, static_cast<int32_t>(group));
      const int32_t block = index < table.size() ? table[index] : -1;
      CHECK_MSG(block >= 0, "a token is written into a block that its sequence does not hold");
      const int64_t slot = int64_t{block} * block_tokens + offset;
      int64_t* const to = &slots_[group][row];
      to[0] = slot;  // all of a decode: the loop is for many
      if (count > 1) std::iota(to + 1, to + count, slot + 1);
    }
    first += count;
    row += static_cast<size_t>(count);
  }
}

void BatchBuilder::add_sequences(const Place& place, Attending attending, const SlotTable& tables) {
  const auto row_first = static_cast<int32_t>(tokens_.size());
  if (attending == Attending::kTogether) return add_sequence(place, row_first, tables);
  for (int32_t i = 0; i < place.count; ++i) {
    add_sequence({.slot = place.slot, .first = place.first + i, .count = 1}, row_first + i, tables);
  }
}

void BatchBuilder::add_sequence(const Place& place, int32_t row_first, const SlotTable& tables) {
  sequence_slots_.push_back(place.slot);
  for (size_t kind = 0; kind < sequences_.size(); ++kind) {
    const int32_t group = plan_.kinds[kind].group_first;
    sequences_[kind].push_back({.row_first = row_first,
                                .row_count = place.count,
                                .kv_length = place.first + place.count,
                                .block_table = tables.block_table(place.slot, group).data()});
  }
}

// The last rows of the sequence that was added last.
void BatchBuilder::add_tree(const TokenTree& tree) {
  const uint64_t* const paths = paths_.data() + paths_.size();
  for (int32_t i = 0; i < tree.size(); ++i) paths_.push_back(tree.path(i));
  add_paths(paths, tree.size());
}

// To the sequence that was added last.
void BatchBuilder::add_paths(const uint64_t* paths, int32_t tree_rows) {
  for (auto& sequences_of_kind : sequences_) {
    sequences_of_kind.back().paths = paths;
    sequences_of_kind.back().tree_rows = tree_rows;
  }
}

void BatchBuilder::add_logit_rows(const Work& work, const Slot& slot, int32_t row_first) {
  if (work.rows == LogitRows::kAll) {
    // The row of prompt token p scores token p + 1; a recomputed output token is not scored again.
    for (int32_t i = 0; i < work.count && work.first + i + 1 < slot.prompt_length; ++i) {
      logit_rows_.push_back({.hidden_row = row_first + i,
                             .sequence = work.sequence,
                             .slot = work.slot,
                             .scored = slot.tokens[static_cast<size_t>(work.first + i + 1)]});
    }
  }
  const int32_t last = row_first + work.count - 1;
  if (work.samples) {
    const TokenTree& tree = work.proposed;
    LogitRow row{.hidden_row = last - tree.size(),
                 .sequence = work.sequence,
                 .slot = work.slot,
                 .samples = true};
    logit_rows_.push_back(row);
    for (int32_t i = 0; i < tree.size(); ++i) {
      ++row.hidden_row;
      row.ahead = tree.depth(i) + 1;
      row.proposed = tree.token(i);
      row.behind = tree.parent(i) + 1;
      logit_rows_.push_back(row);
    }
  }
  for (const SampleTarget& target : work.also_sample) {
    logit_rows_.push_back(
        {.hidden_row = last, .sequence = target.sequence, .slot = target.slot, .samples = true});
  }
}

}  // namespace headrace
