// ModelSource: a model on disk, whatever its format. A new format is a class and a line in
// open_model_source(). Here weights and text meet; nothing is computed yet.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/sampling_defaults.h"
#include "base/status.h"
#include "text/vocab.h"
#include "weights/encoder_config.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"
#include "weights/pooling_config.h"
#include "weights/weight_source.h"

namespace headrace {

enum class SourceKind { kGguf, kHuggingFace };

// What a person is told of the source itself, as far as it can be read.
struct SourceTitle {
  std::string format;        // "GGUF version 3, 33 keys, alignment 32"
  std::string name;          // that its makers gave it; empty = none
  std::string architecture;  // as the source spells it
};

// Const and safe for any thread: weights and text are read side by side. Errors are one line that
// names file and field, the same words whoever asks.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual SourceKind kind() const = 0;
  // As it was given; for messages.
  virtual const std::string& path() const = 0;
  virtual SourceTitle title() const = 0;
  virtual Result<ModelConfig> config() const = 0;
  // Of an encoder, which has no ModelConfig; empty: the source is none.
  virtual Result<std::optional<EncoderConfig>> encoder() const {
    return std::optional<EncoderConfig>();
  }
  // How a decoder's rows become vectors or scores, where the source is made for that; empty: it
  // generates text, or it is an encoder.
  virtual Result<std::optional<PoolingConfig>> pooling() const = 0;
  // Tensors under GGUF names, for which a Hugging Face folder needs the table of the architecture.
  // `tied`: the embedding is the output matrix.
  virtual Result<std::shared_ptr<WeightSource>> weights(HfTensorNames names, bool tied) const = 0;
  // Empty: the source has none, and the model takes token ids only.
  virtual Result<std::optional<Vocab>> vocab() const = 0;
  // Empty = none.
  virtual Result<std::string> chat_template() const = 0;
  // The sampling that its makers suggest.
  virtual Result<SamplingDefaults> sampling() const = 0;
  // Gives back what is in memory of mapped files. What was handed out stays valid, and is read from
  // the file again where it is looked at. Any thread, also beside readers.
  virtual void release_pages() const {}
};

// `path`: a .gguf file (any part of a split one), a Hugging Face folder, or a file in one
// (config.json, model.safetensors), or the name of a model in the Hugging Face cache (hub_cache.h).
// Checks that it can be opened, and a GGUF file's headers.
// `map`: the path of a file that says what a folder's class is (weights/architecture_map.h); empty:
// the class is known.
Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path,
                                                       const std::string& map = "");

// "SmolLM2-135M.Q4_1" for a file of that name, the folder's name for a folder or its config.json.
std::string model_name(const std::string& path);

}  // namespace headrace
