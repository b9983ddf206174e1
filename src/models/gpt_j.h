// GPT-J (Wang and Komatsuzaki, 2021): parallel layers of one LayerNorm, a part of a head rotates,
// interleaved, a bias of the output. CodeGen (Nijkamp et al., 2022) is the same with q, v and k in
// one matrix, in four parts.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gpt_j_spec(const ModelConfig& config);
DecoderSpec code_gen_spec(const ModelConfig& config);
HfTensorNames gpt_j_hf_names();  // of both

}  // namespace headrace
