// Sampler: logits rows -> tokens and log-probabilities, with each slot's own parameters.
#pragma once

#include <span>
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

 private:
  SampleRow parameters(const LogitRow& row, const SlotTable& slots, int64_t vocabulary);

  const std::vector<TokenId> end_ids_;
  std::vector<SampleResult> results_;
  // They keep the spans of a call alive.
  std::vector<std::vector<TokenId>> banned_;
  std::vector<std::vector<uint32_t>> allowed_;  // [ceil(V / 32)]; empty: all
  std::vector<bool> dead_ends_;                 // of all rows: their form leaves nothing to choose
};

}  // namespace headrace
