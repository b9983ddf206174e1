#include "engine/batch_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headrace {

ForwardBatch BatchBuilder::build(const StepPlan& plan, const SlotTable& slots) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  make_room(plan);
  for (size_t i = 0; i < plan.work.size(); ++i) {
    const Work& work = plan.work[i];
    const Slot& slot = slots[work.slot];
    const auto row_first = static_cast<int32_t>(tokens_.size());
    set_slots(work, slots);
    set_sequences(work, i, slots);
    add_tokens(work, slot);
    add_logit_rows(work, slot, row_first);
  }
  fill_groups(slots.group_stride());
  return {.tokens = tokens_,
          .positions = positions_,
          .groups = groups_,
          .layer_group = plan_.layer_group,
          .kept = keep_rows(plan)};
}

void BatchBuilder::make_room(const StepPlan& plan) {
  size_t rows = 0;
  for (const Work& work : plan.work) rows += static_cast<size_t>(work.count);
  slots_.resize(plan_.groups.size());
  sequences_.resize(plan_.kinds.size());
  for (auto& slots_of_group : slots_) slots_of_group.resize(rows);
  for (auto& sequences_of_kind : sequences_) sequences_of_kind.resize(plan.work.size());
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
  ForwardBatch::Group group = groups_[static_cast<size_t>(plan_.layer_group.back())];
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
  const int32_t known_end = work.first + work.count - static_cast<int32_t>(work.proposed.size());
  CHECK(known_end <= slot.length());
  for (int32_t position = work.first; position < known_end; ++position) {
    const bool known = static_cast<size_t>(position) < slot.tokens.size();
    // Of the tokens in flight a step computes none but the last: the slot's.
    CHECK(known || position + 1 == slot.length());
    tokens_.push_back(known ? slot.tokens[static_cast<size_t>(position)]
                            : token_of_slot(work.slot));
    positions_.push_back(position);
  }
  for (size_t i = 0; i < work.proposed.size(); ++i) {
    tokens_.push_back(work.proposed[i]);
    positions_.push_back(known_end + static_cast<int32_t>(i));
  }
}

// Block by block, of which all groups have one at the same place.
void BatchBuilder::set_slots(const Work& work, const SlotTable& tables) {
  const int32_t block_tokens = plan_.block_tokens, end = work.first + work.count;
  size_t row = tokens_.size();
  for (int32_t first = work.first; first < end;) {
    const auto index = static_cast<size_t>(first / block_tokens);
    const int32_t offset = first % block_tokens;
    const int32_t count = std::min(end - first, block_tokens - offset);
    for (size_t group = 0; group < slots_.size(); ++group) {
      const auto table = tables.block_table(work.slot, static_cast<int32_t>(group));
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

void BatchBuilder::set_sequences(const Work& work, size_t index, const SlotTable& tables) {
  for (size_t kind = 0; kind < sequences_.size(); ++kind) {
    const int32_t group = plan_.kinds[kind].group_first;
    sequences_[kind][index] = {.row_first = static_cast<int32_t>(tokens_.size()),
                               .row_count = work.count,
                               .kv_length = work.first + work.count,
                               .block_table = tables.block_table(work.slot, group).data()};
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
    const auto proposed = static_cast<int32_t>(work.proposed.size());
    for (int32_t i = 0; i <= proposed; ++i) {
      logit_rows_.push_back(
          {.hidden_row = last - proposed + i,
           .sequence = work.sequence,
           .slot = work.slot,
           .samples = true,
           .ahead = i,
           .proposed = i < proposed ? work.proposed[static_cast<size_t>(i)] : TokenId{-1}});
    }
  }
  for (const SampleTarget& target : work.also_sample) {
    logit_rows_.push_back(
        {.hidden_row = last, .sequence = target.sequence, .slot = target.slot, .samples = true});
  }
}

}  // namespace headrace
