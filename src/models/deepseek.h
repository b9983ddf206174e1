// DeepSeek V2 and V3 (DeepSeek-AI, 2024), and what is built like them (R1, Kimi K2, Moonlight,
// GLM-4.7-Flash, Mistral Small 4, whose queries grow with their positions): latent attention, and
// mixtures of experts behind a few dense layers. Of V3.2 and GLM-5 an index says which keys are
// attended.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec deepseek_spec(const ModelConfig& config);
// A.X-K1 (SK Telecom, 2025): DeepSeek V3 with a norm behind mixtures.
DecoderSpec axk1_spec(const ModelConfig& config);
HfTensorNames axk1_hf_names();
// A.X-K2 (SK Telecom, 2026): DeepSeek V3.2 whose normalised rows have gates, as its heads do.
DecoderSpec axk2_spec(const ModelConfig& config);
HfTensorNames axk2_hf_names();
HfTensorNames deepseek_hf_names();

}  // namespace headrace
