// Families with ALiBi in place of positions (Press et al., 2022): BLOOM (BigScience, 2022), whose
// embeddings are normalised and whose matrices have biases, and MPT (MosaicML, 2023), which has no
// bias at all.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec bloom_spec(const ModelConfig& config);
DecoderSpec mpt_spec(const ModelConfig& config);
HfTensorNames bloom_hf_names();
HfTensorNames mpt_hf_names();

}  // namespace headrace
