// Of a model whose layers are shared out over stages (--pipeline-parallel-size): which layers each
// has, and what does not go with stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "stack/stack_options.h"
#include "weights/weight_source.h"

namespace headrace {

// kUnsupported naming the flag that does not go with stages. Proposals are switched off, which the
// log says: a step of another stage would have to wait for them.
Status check_stage_options(StackOptions& options);

// What a step reads of a model's weights, in elements: what its time goes by, however many rows it
// has.
struct LayerCosts {
  std::vector<double> layers;  // [layers]
  double head = 0;             // behind the last
};
LayerCosts layer_costs(const WeightSource& weights, const ModelSpec& model);

// Neighbouring layers of each stage: such that the dearest stage is as cheap as can be or, where
// one would then lack what each needs, as many each as can be. kUnsupported where a stage of
// `model` would be empty, or keep nothing of what the scheduler counts: keys and values, and states
// where the model has some.
Result<std::vector<LayerRange>> plan_stages(const ModelSpec& model, const LayerCosts& costs,
                                            int32_t stages);

// Layers of the stage that has most; 0 where there are no stages.
int32_t layers_of_most(const std::vector<LayerRange>& stages);

// For the log.
std::string stages_line(const std::vector<LayerRange>& stages);

}  // namespace headrace
