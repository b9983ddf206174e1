// Gemma (Mesnard et al., 2024): Llama with gated GELU and scaled embeddings. Gemma 2 (Riviere et
// al., 2024): norms after each part too, soft caps, every other layer slides. Gemma 3 (Kamath et
// al., 2025): norms of q and k heads instead of caps, five of six layers slide, with a rotation of
// their own. VaultGemma (2025): Gemma 2 without the norms behind.
//
// The norms of Hugging Face files multiply by 1 + weight; GGUF files hold that sum.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gemma_spec(const ModelConfig& config);
DecoderSpec gemma2_spec(const ModelConfig& config);
DecoderSpec gemma3_spec(const ModelConfig& config);
DecoderSpec vault_gemma_spec(const ModelConfig& config);
HfTensorNames gemma_hf_names();
HfTensorNames gemma2_hf_names();
HfTensorNames gemma3_hf_names();

}  // namespace headrace
