#include "models/phi3.h"

namespace headrace {

DecoderSpec phi3_spec(const ModelConfig& config) { return uniform_decoder(config); }

}  // namespace headrace
