// Phi-1, 1.5 and 2 (Li et al., 2023): parts that read one LayerNorm of x, biases everywhere, in the
// output matrix too, rotation of a part of each head.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec phi_spec(const ModelConfig& config);
// Phi-3.5-MoE (Abdin et al., 2024): Mixtral with LayerNorms, biases and SparseMixer's routing.
DecoderSpec phi_moe_spec(const ModelConfig& config);
HfTensorNames phi_hf_names();

}  // namespace headrace
