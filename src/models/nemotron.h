// Networks of squared ReLU (So et al., 2021) without a gate: Nemotron (NVIDIA, 2024), with
// LayerNorms whose weights are stored less 1 and heads of which a part rotates; Jais 2 (2025),
// Llama's rotation and LayerNorms; Arcee (2025), Llama else.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

// NanoChat (Karpathy, 2025): no norm has a weight, those of heads stand behind a rotation that
// turns the other way, and embeddings are normalised.
DecoderSpec nanochat_spec(const ModelConfig& config);
DecoderSpec nemotron_spec(const ModelConfig& config);  // and Jais 2
DecoderSpec arcee_spec(const ModelConfig& config);
HfTensorNames nemotron_hf_names();

}  // namespace headrace
