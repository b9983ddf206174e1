// Of a model whose layers are shared out over stages (--pipeline-parallel-size): which layers each
// has, and what does not go with stages.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "models/model.h"
#include "stack/stack_options.h"

namespace headrace {

// kUnsupported naming the flag that does not go with stages. Proposals are switched off, which the
// log says: a step of another stage would have to wait for them.
Status check_stage_options(StackOptions& options);

// Neighbouring layers, as many each as can be.
LayerRange layers_of_stage(int32_t layers, int32_t stage, int32_t stages);

// kUnsupported where a stage of `model` would be empty, or keep nothing of what the scheduler
// counts: keys and values, and states where the model has some.
Status check_stages(const ModelSpec& model, int32_t stages);

}  // namespace headrace
