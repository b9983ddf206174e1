// Step 3.5 and the text half of Step 3.7 (StepFun, 2026): Laguna with gates of a sigmoid and norms
// of 1 + w, in whose last layers gates and ups have limits.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec step_spec(const ModelConfig& config);
HfTensorNames step_hf_names();

}  // namespace headrace
