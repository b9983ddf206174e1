// Draft heads on disk, in the formats of the hub: EAGLE-1, 2 and 3 (also as `speculators` has it)
// and Medusa; a folder with config.json and safetensors each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/draft_head.h"
#include "models/medusa_heads.h"
#include "models/model.h"
#include "sched/proposal_options.h"
#include "tensor/device.h"
#include "weights/weight_source.h"

namespace headrace {

// By what its files hold: kDraftModel unless they are a head's. What cannot be read is a model's,
// whose load says why.
ProposalMethod method_of_draft(const std::string& path);

// The model that a head is loaded for.
struct HeadTarget {
  const ModelSpec& spec;
  std::shared_ptr<const WeightSource> weights;  // whose embedding and output matrix heads share
  int32_t served_length = 0;
  ComputeType compute = ComputeType::kFast;
};

struct LoadedHead {
  std::unique_ptr<WeightSource> weights;  // outlives the model, which looks rows up in it
  std::unique_ptr<Model> model;           // of EAGLE
  std::unique_ptr<MedusaHeads> medusa;
  DraftHead head;
};

// `method`: method_of_draft(); `output_rows`: of the output matrix, the first ones alone; 0: all.
// Errors are one line that names the head, and both numbers where its sizes are another model's.
Result<LoadedHead> load_draft_head(const std::string& path, ProposalMethod method,
                                   int32_t output_rows, const HeadTarget& target, Device& device);

}  // namespace headrace
