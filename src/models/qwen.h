// Qwen 3 (Yang et al., 2025): Llama with an RMSNorm on each head of q and k, and with mixtures of
// experts; Qwen 2's mixtures (2024), which have a gated shared expert.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec qwen3_spec(const ModelConfig& config);
// Mellum (JetBrains, 2026): its mixtures with windows, and a rotation of layers that slide.
DecoderSpec mellum_spec(const ModelConfig& config);
// Hunyuan V3 (Tencent, 2026): with experts chosen by sigmoids with a bias, and a shared one.
DecoderSpec hy_v3_spec(const ModelConfig& config);
DecoderSpec qwen2_moe_spec(const ModelConfig& config);
// Of Qwen 3 VL's mixtures, whose experts the hub's files have turned.
HfTensorNames qwen3_vl_moe_hf_names();

}  // namespace headrace
