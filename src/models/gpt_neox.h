// GPT-NeoX (Black et al., 2022) and Pythia: parts that read x through a LayerNorm each, in some
// models one after the other; a head's rows of q, k and v lie together in files of the hub.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gpt_neox_spec(const ModelConfig& config);
HfTensorNames gpt_neox_hf_names();
// GPT-NeoX-Japanese (ABEJA, 2022): one part behind the other, and no biases but one.
DecoderSpec gpt_neox_japanese_spec(const ModelConfig& config);
HfTensorNames gpt_neox_japanese_hf_names();
// Persimmon (Adept, 2023): the same with squared ReLU and LayerNorms of heads.
DecoderSpec persimmon_spec(const ModelConfig& config);
HfTensorNames persimmon_hf_names();

}  // namespace headrace
