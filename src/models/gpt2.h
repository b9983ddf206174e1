// GPT-2 (Radford et al., 2019) and what kept its form: learned positions, LayerNorms, plain GELU
// networks, biases. StarCoder and SantaCoder (GPT-BigCode; Li et al., 2023) have one key head;
// GPT-Neo (Black et al., 2021) q, k and v apart, scores that are not scaled and windows in every
// second layer.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gpt2_spec(const ModelConfig& config);
HfTensorNames gpt2_hf_names();  // matrices are turned
HfTensorNames gpt_big_code_hf_names();
HfTensorNames gpt_neo_hf_names();
// The first GPT (Radford et al., 2018): norms behind its parts, and none behind the last layer.
DecoderSpec gpt_spec(const ModelConfig& config);
HfTensorNames gpt_hf_names();
// CTRL (Keskar et al., 2019): GPT-2 with ReLU and positions that are not learned.
DecoderSpec ctrl_spec(const ModelConfig& config);
HfTensorNames ctrl_hf_names();

}  // namespace headrace
