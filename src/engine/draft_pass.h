// DraftPass: what a ModelDrafter computes its model's passes with, on a kind of device
// (host_draft_pass.h, device_draft_pass.h). It has the keys and values of the model's layers, and
// of a head the features of its rows.
#pragma once

#include <optional>
#include <span>

#include "engine/batch_builder.h"
#include "engine/slot_table.h"
#include "ops/op.h"
#include "ops/sampling/sample.h"

namespace headrace {

// Tokens of a sequence in a pass. Of a head's rows, where their features are: in the pages, as
// those of the tokens before, or the row of the pass before.
struct DraftRun {
  TokenRun tokens;
  int32_t feature_row = -1;  // -1: in the pages
};

// The thread of its runner.
class DraftPass {
 public:
  virtual ~DraftPass() = default;
  // With which features are made too.
  virtual OpContext context() = 0;
  // Before a step's first pass.
  virtual void begin() {}
  // Computes the runs and chooses the tokens that may follow `rows` of them, with log-probabilities
  // where the answer is greedy; until the next call. All runs of a pass have features alike.
  virtual std::span<const SampleResult> run(std::span<const DraftRun> runs,
                                            std::span<const LogitRow> rows,
                                            const SlotTable& slots) = 0;
  // Behind a step's last.
  virtual void end() {}
  // What the passes of the step took, on the device's clock; none on a CPU.
  virtual std::optional<double> device_seconds() { return {}; }
};

}  // namespace headrace
