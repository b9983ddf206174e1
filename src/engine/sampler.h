// Sampler: logits rows -> tokens and log-probabilities, with each slot's own parameters.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/slot_table.h"
#include "ops/op.h"
#include "ops/sampling/sample.h"
#include "sched/step_plan.h"

namespace headrace {

class Sampler {
 public:
  explicit Sampler(std::vector<TokenId> end_ids) : end_ids_(std::move(end_ids)) {}

  // Samples or scores `rows`, whose logits are [rows, V], and appends one Row for each sequence to
  // `result`. REQUIRES: the rows of a sequence are consecutive
  void run(OpContext& context, std::span<const LogitRow> rows, ConstTensorView logits,
           const SlotTable& slots, StepResult& result);
  // Of a draft model, whose vocabulary may end before the slots' does: tokens that may follow, with
  // their log-probabilities and LogitRow::alternatives; until the next call.
  std::span<const SampleResult> propose(OpContext& context, std::span<const LogitRow> rows,
                                        ConstTensorView logits, const SlotTable& slots);

 private:
  void begin_rows(size_t count);
  bool allow(const LogitRow& row, const Slot& slot, int64_t vocabulary);
  SampleRow parameters(const LogitRow& row, const SlotTable& slots);
  void keep_below(int64_t vocabulary, SampleRow& row);

  const std::vector<TokenId> end_ids_;
  std::vector<SampleResult> results_;
  // They keep the spans of a call alive.
  std::vector<SampleRow> parameters_;
  std::vector<std::vector<TokenId>> banned_;
  std::vector<std::vector<std::pair<TokenId, float>>> biases_;  // of a draft's rows
  std::vector<std::vector<uint32_t>> allowed_;                  // [ceil(V / 32)]; empty: all
  std::unique_ptr<TokenMatcher> ahead_;  // behind the proposals of the sequence's rows so far
  std::vector<bool> dead_ends_;          // of all rows: their form leaves nothing to choose
};

}  // namespace headrace
