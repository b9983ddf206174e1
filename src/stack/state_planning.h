// Of models that keep a state of fixed size of each sequence: how many sequences and checkpoints of
// states there is memory for, and what does not go with states.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "models/model.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

// kUnsupported naming the flag that does not go with states. Proposals are switched off, which the
// log says: a state does not undo them.
Status check_state_options(StackOptions& options);
// Of a model whose tokens share keys: kUnsupported naming the flag that asks for trees of
// proposals.
Status check_trees(const StackOptions& options);

// Of `wanted` sequences at once, where no flag says so, those whose states take an eighth of the
// memory that is free (a third, where no layer attends), at least one.
int32_t sequences_with_states(int32_t wanted, const ModelSpec& model, const Device& device);

// Checkpoints, as --state-checkpoints says, or two for each of `sequences` within as much of it; 0
// where prefixes are not kept.
int32_t plan_state_checkpoints(const StackOptions& options, const ModelSpec& model,
                               int32_t sequences, const Device& device);

// "states of 2.10 MiB a sequence, whatever its length: 64 sequences and 128 checkpoints, 0.39 GiB".
std::string state_plan_line(const ModelSpec& model, int32_t sequences, int32_t checkpoints);

}  // namespace headrace
