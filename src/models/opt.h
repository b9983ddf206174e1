// OPT (Zhang et al., 2022): learned positions, of which the table's first two rows are none,
// LayerNorms, plain ReLU networks, biases everywhere.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec opt_spec(const ModelConfig& config);
HfTensorNames opt_hf_names();
// BioGPT (Luo et al., 2022): the same with GELU.
DecoderSpec biogpt_spec(const ModelConfig& config);
HfTensorNames biogpt_hf_names();
// XGLM (Lin et al., 2021): that with positions that are not learned.
DecoderSpec xglm_spec(const ModelConfig& config);
HfTensorNames xglm_hf_names();

}  // namespace headrace
