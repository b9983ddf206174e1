// Inkling (Thinking Machines, 2026): attention that does not rotate but knows by learned profiles
// how far keys are away, short convolutions of keys, values and of what the parts of a layer make,
// layers that slide with heads of their own, experts whose shared ones have scores, too.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec inkling_spec(const ModelConfig& config);
HfTensorNames inkling_hf_names();

}  // namespace headrace
