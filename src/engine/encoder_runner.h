// The EmbeddingRunner of an Encoder on a CPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/embedding_engine.h"
#include "models/encoder.h"
#include "tensor/device.h"

namespace headrace {

// Takes the scratch memory of a pass of `pass_tokens_max` tokens; kExhausted where there is none.
// `device`, `encoder` and `hooks` (or null) outlive it.
Result<std::unique_ptr<EmbeddingRunner>> create_encoder_runner(Device& device,
                                                               const Encoder& encoder,
                                                               int32_t pass_tokens_max,
                                                               const OpHooks* hooks);

}  // namespace headrace
