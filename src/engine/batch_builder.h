// BatchBuilder: a StepPlan and the SlotTable -> the packed device batch, and the list of rows whose
// logits are wanted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/slot_table.h"
#include "models/model.h"
#include "ops/sampling/slot_state.h"
#include "sched/step_plan.h"

namespace headrace {

// One row of logits, of which either the next token of a slot is sampled or a token of the prompt
// is scored.
struct LogitRow {
  int32_t hidden_row = 0;  // the row of the last layer's output that it is made of
  SequenceId sequence;
  SlotId slot;
  bool samples = false;
  TokenId scored = -1;  // for scoring: the token that follows
  // Of a step with proposals: how many of them stand before the token that this row samples, the
  // last of these (-1: none), and the row that samples at its place, counted from the sequence's
  // first.
  int32_t ahead = 0;
  TokenId proposed = -1;
  int32_t behind = -1;
  int32_t alternatives = 0;  // of a draft's row: so many of its likeliest tokens are told
};

// Tokens of a sequence, the first of them at position `first`.
struct TokenRun {
  SlotId slot;
  int32_t first = 0;
  TokenSpan tokens;
  // CPU. Of one token that is the last of a tree of proposals: the paths of all of it, as
  // AttentionSequence has them; `first` is its place. Empty: its place is its position.
  std::span<const uint64_t> paths = {};
};

class BatchBuilder {
 public:
  // Of a model whose layers are `layers` of the plan's, which outlives this. `keeps_rows`: the
  // last layer keeps only the rows that logits are made of, in steps where these are at most half
  // of all rows and each is the last of its sequence.
  BatchBuilder(const KvPlan& plan, LayerRange layers, bool keeps_rows);
  // Batches say where tokens lie in the pages of these layers too, which others write.
  void place_too(LayerRange layers);

  // How rows of a sequence attend: together, or each as a sequence of its own that ends with it,
  // which sees the same keys.
  enum class Attending : uint8_t { kTogether, kAlone };
  // The batch, in memory of the host that is valid until the next build(). A token that a step in
  // flight samples is token_of_slot(). REQUIRES: slots.update(plan) was called
  ForwardBatch build(const StepPlan& plan, const SlotTable& slots,
                     Attending attending = Attending::kTogether);
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }
  // Of each sequence of the batch.
  std::span<const SlotId> sequence_slots() const { return sequence_slots_; }
  // The batch of these tokens alone, whose pages the slots have; no rows of logits, and none that
  // are kept.
  ForwardBatch build(std::span<const TokenRun> runs, const SlotTable& slots);

 private:
  // Where tokens lie: so many of a slot's sequence from `first` on.
  struct Place {
    SlotId slot;
    int32_t first = 0, count = 0;
  };
  void add_tokens(const Work& work, const Slot& slot);
  void begin(size_t rows);
  void set_slots(const Place& place, const SlotTable& tables);
  void add_sequences(const Place& place, Attending attending, const SlotTable& tables);
  void add_sequence(const Place& place, int32_t row_first, const SlotTable& tables);
  void add_tree(const TokenTree& tree);
  void add_paths(const uint64_t* paths, int32_t tree_rows);
  void fill_groups(int32_t group_stride);
  void add_adapter_rows(const Slot& slot, int32_t row_first, int32_t count);
  ForwardBatch batch() const;
  void add_logit_rows(const Work& work, const Slot& slot, int32_t row_first);
  const ForwardBatch::KeptRows* keep_rows(const StepPlan& plan);  // null: all rows

  const KvPlan& plan_;
  const std::span<const int32_t> layer_group_;  // [layers] of the model
  const bool keeps_rows_;
  std::vector<bool> in_use_;  // [groups] the model has layers in it
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<std::vector<int64_t>> slots_;                // [groups][T]
  std::vector<std::vector<AttentionSequence>> sequences_;  // [kinds][S]
  std::vector<SlotId> sequence_slots_;                     // [S]
  std::vector<ForwardBatch::Group> groups_;
  std::vector<LogitRow> logit_rows_;
  std::vector<uint64_t> paths_;                    // of the trees' rows
  std::vector<AdapterRows> adapters_;              // of the rows that have some
  std::vector<int32_t> kept_rows_;                 // [R]
  std::vector<AttentionSequence> kept_sequences_;  // [R]
  ForwardBatch::KeptRows kept_;
};

}  // namespace headrace
