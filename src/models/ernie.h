// ERNIE 4.5 (Baidu, 2025): Llama with interleaved rotation; its mixtures have a softmax, of which a
// bias of the choice, and experts that every token takes.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec ernie4_5_moe_spec(const ModelConfig& config);
HfTensorNames ernie4_5_moe_hf_names();

}  // namespace headrace
