// OLMo (Groeneveld et al., 2024): Llama with LayerNorms of neither weights nor biases. OLMo 2
// (2024): Llama with norms after each part instead of before it, and norms over whole rows of q and
// k. OLMo 3 (2025), in GGUF files under the same name: three of four layers slide, and only the
// others have scaled positions. FlexOlmo (2025): OLMo 2 with OLMoE's mixtures.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec olmo_spec(const ModelConfig& config);
DecoderSpec olmo2_spec(const ModelConfig& config);
DecoderSpec flex_olmo_spec(const ModelConfig& config);
HfTensorNames olmo2_hf_names();
// OLMo-Hybrid (Ai2, 2026): gated DeltaNet in most layers.
DecoderSpec olmo_hybrid_spec(const ModelConfig& config);
HfTensorNames olmo_hybrid_hf_names();
HfTensorNames flex_olmo_hf_names();

}  // namespace headrace
