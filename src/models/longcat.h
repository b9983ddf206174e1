// LongCat-Flash (Meituan, 2025): DeepSeek's attention and networks twice a layer, and between the
// two a mixture on a shortcut: it reads what the first network reads, and what it makes is added
// behind the second. Some of its experts give back their rows.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec longcat_spec(const ModelConfig& config);
HfTensorNames longcat_hf_names();

}  // namespace headrace
