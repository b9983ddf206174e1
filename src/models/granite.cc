#include "models/granite.h"

namespace headrace {

DecoderSpec granite_spec(const ModelConfig& config) { return uniform_decoder(config); }

}  // namespace headrace
