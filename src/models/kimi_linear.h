// Kimi-Linear (Kimi Team, 2025): Kimi Delta Attention in most layers, latent attention that does
// not rotate in the others, DeepSeek's mixtures.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec kimi_linear_spec(const ModelConfig& config);
DecoderSpec ling3_spec(const ModelConfig& config);
HfTensorNames ling3_hf_names();
HfTensorNames kimi_linear_hf_names();

}  // namespace headrace
