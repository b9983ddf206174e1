// dots.llm1 (2025): Qwen 3's attention, and mixtures with DeepSeek-V3's router: sigmoids, a bias of
// the choice, shared experts, some dense layers at the front.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

DecoderSpec dots1_spec(const ModelConfig& config);

}  // namespace headrace
