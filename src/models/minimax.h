// MiniMax-Text-01 (2025): lightning attention but in some layers, mixtures of experts, and norms
// whose rows branches are added to. MiniMax-M2 (2025): norms over whole rows of q and k, rotation
// of a part of each head, mixtures of experts chosen by sigmoids with a bias. MiniMax-M3 (2026):
// norms of heads of 1 + w, clamped swishes, a shared expert, and an index that says which blocks of
// keys a head attends.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec minimax_spec(const ModelConfig& config);
DecoderSpec minimax_m2_spec(const ModelConfig& config);
DecoderSpec minimax_m3_spec(const ModelConfig& config);
HfTensorNames minimax_hf_names();
HfTensorNames minimax_m3_hf_names();

}  // namespace headrace
