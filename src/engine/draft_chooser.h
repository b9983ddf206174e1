// DraftChooser: which tokens a draft on a CPU takes for the logits of its rows: what the request's
// parameters and the random number of the place say. A draft that knows fewer tokens than its model
// has ids of its own for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/draft_head.h"
#include "engine/sampler.h"
#include "ops/op.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace headrace {

// One thread at a time.
class DraftChooser {
 public:
  struct Source {
    std::vector<TokenId> end_ids;
    int32_t vocabulary = 0;    // of the model that the draft proposes for
    std::vector<TokenId> ids;  // DraftHead::tokens
  };
  static int64_t bytes(Device& device, const Source& source);
  // The device outlives it.
  static Result<DraftChooser> create(Device& device, Source source);

  // The tokens that may follow `rows`, at most kLogitRowsMax, whose logits these are, with their
  // log-probabilities; until the next call.
  std::span<const SampleResult> choose(OpContext& context, std::span<const LogitRow> rows,
                                       const TensorView& logits, const SlotTable& slots);

 private:
  DraftChooser(Device& device, Source source)
      : device_(&device), source_(std::move(source)), sampler_(source_.end_ids) {}

  Device* device_;
  Source source_;
  Sampler sampler_;
  // Where it has ids of its own: [kLogitRowsMax, V], and what sampling takes over these.
  Buffer all_logits_;
  Workspace choosing_;
};

// Of a runner's options.
DraftChooser::Source chooser_source(const std::vector<TokenId>& end_ids, int32_t vocabulary,
                                    const std::optional<DraftHead>& head);

}  // namespace headrace
