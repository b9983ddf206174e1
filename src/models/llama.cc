#include "models/llama.h"

namespace headrace {

DecoderSpec llama_spec(const ModelConfig& config) { return uniform_decoder(config); }

}  // namespace headrace
