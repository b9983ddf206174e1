// The EmbeddingRunner of a decoder on a CPU: each token of a text sees those before it, and what is
// read of the last layer becomes the text's vector, or the logits of its classes.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/embedding_engine.h"
#include "models/model.h"
#include "models/pooling.h"
#include "tensor/device.h"

namespace headrace {

struct PooledDecoderOptions {
  Pooling pooling = Pooling::kLast;
  bool normalise = true;
  ClassifierHead head;           // with labels: of the pooled row
  std::vector<float> head_rows;  // [labels, D]
  KvFormats kv_formats;
  int32_t length_max = 0;  // tokens of a text
  int32_t rows_max = 512;  // tokens of a pass of several texts, and that a layer takes at a time
};

// Takes the scratch memory of a pass: of several texts of rows_max tokens together, or of one of
// length_max. kExhausted where there is none. `device`, `model` and `hooks` (or null) outlive it.
Result<std::unique_ptr<EmbeddingRunner>> create_pooled_decoder_runner(Device& device,
                                                                      const Model& model,
                                                                      PooledDecoderOptions options,
                                                                      const OpHooks* hooks);

}  // namespace headrace
