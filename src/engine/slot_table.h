// SlotTable: what a device keeps of each running sequence between steps. A plan carries only deltas
// (admissions, new blocks, sampled tokens); this table holds the truth.
// The CPU twin is plain arrays, used by the engine thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/penalty_counts.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace headrace {

struct Slot {
  SequenceId sequence;
  int32_t choice = 0;
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;            // prompt, then output, as far as the host knows
  int32_t in_flight = 0;                  // tokens behind these that steps in flight sample
  int32_t prompt_length = 0;              // of the request, not of a recomputed prefix
  PenaltyCounts counts;                   // of `tokens`; none where another counts
  std::unique_ptr<TokenMatcher> matcher;  // of the output; null: the answer is free

  int32_t length() const { return static_cast<int32_t>(tokens.size()) + in_flight; }
  TokenSpan prompt() const { return TokenSpan(tokens).first(static_cast<size_t>(prompt_length)); }
  TokenSpan output() const { return TokenSpan(tokens).subspan(static_cast<size_t>(prompt_length)); }
};

class SlotTable {
 public:
  // Whether slots keep what penalties count. Not where nothing is sampled by them, or a GPU counts.
  enum class Counting : bool { kNone, kPenalties };
  // `blocks_max`: most blocks of a sequence in one group
  SlotTable(int32_t slot_count, int32_t group_count, int32_t blocks_max,
            Counting counting = Counting::kPenalties);

  // Applies a plan's releases, admissions and new blocks.
  void update(const StepPlan& plan);
  // Forgets all sequences.
  void clear();
  // Says that a step in flight samples a token of the slot's sequence; append() brings the token.
  void expect(SlotId slot);
  // Appends the token that was sampled for a slot's sequence.
  void append(SlotId slot, TokenId token);

  // REQUIRES: the slot holds a sequence
  const Slot& operator[](SlotId slot) const;
  // The block table [blocks] of the slot's sequence in a group; -1: a block that a sliding window
  // has passed and the sequence no longer holds. A slot's table never moves.
  std::span<const int32_t> block_table(SlotId slot, int32_t group) const {
    const size_t row = row_of(slot, group);
    return {&tables_[row * blocks_max_], table_sizes_[row]};
  }

  // Entries from a slot's table in one group to its table in the next.
  int32_t group_stride() const { return static_cast<int32_t>(blocks_max_); }

 private:
  void admit(const Admission& admission);
  void add_blocks(SlotId slot, const GroupBlocks& blocks);
  size_t row_of(SlotId slot, int32_t group) const {
    return static_cast<size_t>(slot.value) * group_count_ + static_cast<size_t>(group);
  }

  size_t group_count_, blocks_max_;
  Counting counting_;
  std::vector<Slot> slots_;
  // [slots][groups]: one allocation, whose rows are found without a load. What lies behind a row's
  // size was never written: 256 slots of 128k tokens would be 8 MB.
  std::unique_ptr<int32_t[]> tables_;
  std::vector<size_t> table_sizes_;
};

}  // namespace headrace
