// EncoderStack: everything between an encoder's folder and an EmbeddingEngine that answers. The
// twin of ModelStack for models that generate nothing.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/embedding_engine.h"
#include "stack/model_stack.h"
#include "stack/stack_options.h"
#include "text/tokenizer.h"
#include "weights/encoder_config.h"

namespace headrace {

class EncoderStack {
 public:
  // Null: what `options` name is no encoder, and a ModelStack's. Errors are one line that names
  // file and field. kUnsupported: a GPU or a kind of load that encoders have not, by its flag.
  static Result<std::unique_ptr<EncoderStack>> load(const StackOptions& options);
  virtual ~EncoderStack() = default;

  virtual EmbeddingEngine& engine() = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // nullptr: the folder has none
  virtual const EncoderConfig& config() const = 0;
  virtual const StackInfo& info() const = 0;  // what it has of keys and values is 0
};

}  // namespace headrace
