// Gemma 4 (Google DeepMind, 2026): Gemma 3's layers with scores that are not scaled, norms of
// values, heads of another size in layers that do not slide, whose values may be made of their
// keys; at the end layers that attend what earlier ones keep. A layer adds what it makes of an
// input of its own of the token, and scales its rows; beside its network a mixture may stand.
// Gemma 3n (Google DeepMind, 2025), before it: streams of rows beside each other (AltUp), a branch
// of low rank beside attention (LAuReL), sparse gates in the first layers.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gemma3n_spec(const ModelConfig& config);
DecoderSpec gemma4_spec(const ModelConfig& config);
HfTensorNames gemma4_hf_names();  // of Gemma 3n, too

}  // namespace headrace
