// OPT (Zhang et al., 2022): learned positions, of which the table's first two rows are none,
// LayerNorms, plain ReLU networks, biases everywhere.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec opt_spec(const ModelConfig& config);
HfTensorNames opt_hf_names();

}  // namespace headrace
