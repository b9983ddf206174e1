// Flint (RecursiveSI, 2026): Qwen 3's mixtures with sinks, windows that alone rotate, a shared
// expert and sigmoids.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec flint_spec(const ModelConfig& config);
HfTensorNames flint_hf_names();
// Kolibri (Aleph Alpha, 2026): EXAONE 4's attention between norms before and behind, and mixtures
// whose logits have the bias of the choice.
DecoderSpec kolibri_spec(const ModelConfig& config);
HfTensorNames kolibri_hf_names();

}  // namespace headrace
