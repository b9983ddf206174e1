// What engine and runner are told of the model and the device that they are made for: sizes of
// batches, context and pool, groups of layers, ends of text, tiers.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "models/model.h"
#include "stack/memory_planning.h"
#include "stack/model_files.h"
#include "stack/stack_options.h"
#include "tensor/device.h"
#include "text/tokenizer.h"

namespace headrace {

struct LoadedModel {
  std::string name;
  const ModelWeights& weights;
  const Tokenizer* tokenizer = nullptr;  // or null
  const Model& model;                    // the first rank's
  std::span<const ModelRank> ranks;      // all
};

// Fills in these fields of options.engine and options.runner; all others stay as they are.
// REQUIRES: max_num_seqs, max_num_batched_tokens and policy of the scheduler are chosen
Result<PoolPlan> fill_in_sizes(const LoadedModel& loaded, const KvPlan& kv, Device& device,
                               StackOptions& options);

// All that decides the bits of keys and values beside model and tokens. It names types and choices,
// and no numbers of a build's enums: a build that adds one reads the pages that others saved.
std::string arithmetic_text(const KvFormats& kept, DType activations, DeviceKind device,
                            const LoadOptions& options);

}  // namespace headrace
