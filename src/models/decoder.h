// Decoder: every decoder-only transformer that a DecoderSpec can say, on any device. It reads no
// batch data on the host: the spans of a ForwardBatch are handed to the ops as they are.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

Result<std::unique_ptr<Model>> load_decoder(DecoderSpec spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options);

}  // namespace headrace
