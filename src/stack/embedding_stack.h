// EmbeddingStack: everything between a model's files and an EmbeddingEngine that answers. The twin
// of ModelStack for models that generate nothing: encoders, and decoders whose rows are pooled.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/embedding_engine.h"
#include "stack/model_source.h"
#include "stack/model_stack.h"
#include "stack/stack_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

// What a person is told of the model beside its StackInfo.
struct EmbeddingModelFacts {
  std::string architecture;
  int32_t context_length = 0;  // that it was made for, tokens
  int32_t hidden = 0, layers = 0;
  std::string gives;  // "vectors of 384 numbers: pooling mean, of length 1"
};

class EmbeddingStack {
 public:
  // Null: what `source` holds generates text, and is a ModelStack's; `source` stays then, else it
  // is taken. Errors are one line that names file and field. kUnsupported: a GPU or a kind of load
  // that such models have not, by its flag.
  static Result<std::unique_ptr<EmbeddingStack>> load(const StackOptions& options,
                                                      std::unique_ptr<ModelSource>& source);
  // Of the source that `options` name.
  static Result<std::unique_ptr<EmbeddingStack>> load(const StackOptions& options);
  virtual ~EmbeddingStack() = default;

  virtual EmbeddingEngine& engine() = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // nullptr: the model has none
  // Makes one prompt of messages of the roles query and document; nullptr: there is none.
  virtual const ChatTemplate* pair_template() const { return nullptr; }
  // Whether two texts are one prompt, without a template one behind the other: a decoder's.
  virtual bool joins_pairs() const { return false; }
  virtual const EmbeddingModelFacts& facts() const = 0;
  virtual const StackInfo& info() const = 0;  // what it has of keys and values is 0
};

// The two kinds.
Result<std::unique_ptr<EmbeddingStack>> load_encoder_stack(const StackOptions& options,
                                                           std::unique_ptr<ModelSource> source,
                                                           const EncoderConfig& config);
Result<std::unique_ptr<EmbeddingStack>> load_pooled_decoder_stack(
    const StackOptions& options, std::unique_ptr<ModelSource> source, const PoolingConfig& config);

}  // namespace headrace
