// Llama 4 (Meta, 2025): three of four layers rotate and see a chunk of the text, the fourth does
// neither, and its queries grow with their positions; norms of heads without weights; mixtures of
// experts whose inputs the router scales, beside a shared one, in some layers.
// Ministral 3 (Mistral AI, 2025): Llama with such queries in all layers.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec llama4_spec(const ModelConfig& config);
DecoderSpec ministral3_spec(const ModelConfig& config);
HfTensorNames llama4_hf_names();
HfTensorNames ministral3_hf_names();

// How much queries grow, as the configuration says it.
QueryTemperature temperature_of(const ModelConfig& config);

}  // namespace headrace
