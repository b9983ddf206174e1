// What a runner is told of a draft head (EAGLE, Medusa): which hidden rows of the model it reads,
// and what its logits are of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "models/medusa_heads.h"

namespace headrace {

struct DraftHead {
  std::string name;  // for messages
  // Layers of the model behind which rows are read; several lie side by side.
  std::vector<int32_t> layers;
  bool normalised = false;      // behind the model's final norm (of its last layer)
  std::vector<TokenId> tokens;  // [logits] the ids that they are of; empty: 0, 1, ...
  // Outlives the runner, or null: the head is a model of layers (ModelRunnerOptions::draft).
  const MedusaHeads* medusa = nullptr;
};

}  // namespace headrace
