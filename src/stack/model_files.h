// Makes of a ModelSource the values that the rest of the program takes: sizes, weights, tokenizer,
// template. Where something stands in the way, every reason is noted, so that `inspect` lists them
// and a load refuses with the first, in the same words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "stack/load_options.h"
#include "stack/model_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

// Why a model does not run here, in the order in which it is looked at; empty: it does.
using Problems = std::vector<Status>;
// The first problem, or ok.
Status refusal(const Problems& problems);

// That --load-format and the source go together.
Status check_load_format(const ModelSource& source, LoadFormat format);

// Members after the first problem's may be empty.
struct ModelWeights {
  const Architecture* architecture = nullptr;  // nullptr: config is not known
  ModelConfig config;
  std::shared_ptr<WeightSource> weights;
  std::string weight_types;  // of matrices, the largest share first: "Q4_1 + Q8_0"
  int64_t parameter_count = 0;
  int64_t file_bytes = 0;  // 0 for dummy weights
  uint64_t content = 0;    // what tells the files from others; 0 likewise
  Problems problems;
};

// All tensors that the architecture reads are checked for presence, shape and type; one that it
// would ignore is a problem, since ignoring it would give wrong answers. `threads` make dummy
// weights. An output matrix that is not in the files is missed where it is needed.
enum class OutputMatrix : uint8_t { kNeeded, kNotNeeded };
ModelWeights read_weights(const ModelSource& source, const LoadOptions& options = {},
                          int32_t threads = 1, OutputMatrix matrix = OutputMatrix::kNeeded);

struct ModelText {
  std::optional<Vocab> vocab;            // empty: the model has token ids only
  std::unique_ptr<Tokenizer> tokenizer;  // nullptr likewise
  std::string template_source;           // empty = none
  std::optional<ChatTemplate> chat_template;
  Problems problems;
};

// Without a template, whether the source has one or not.
ModelText read_tokenizer_alone(const ModelSource& source);

// `chat_template`: instead of the source's, a template or the path of a file with one; empty: the
// source's.
ModelText read_text(const ModelSource& source, const std::string& chat_template = "");

// Sampling of requests that do not say it themselves, in vLLM's words. `generation_config`: auto,
// what the model brings; vllm: nothing; else a folder with a generation_config.json. `overrides`: a
// JSON object of such keys that goes before it; empty: none. Errors name the flag that helps.
Result<SamplingDefaults> read_sampling_defaults(const ModelSource& source,
                                                const std::string& generation_config,
                                                const std::string& overrides);

// What the two halves say of each other. Tokens that were added behind those that the embedding has
// rows of (marks of images, padding) are taken out of the text's, with a warning.
Problems make_agree(const ModelSource& source, const ModelWeights& weights, ModelText& text);

// What holds a source's tensors against those that the architecture declares.
Problems check_tensors(const WeightSource& weights, const Architecture& architecture,
                       const ModelConfig& config);

// "Q4_1 + Q8_0": types of the tensors with at least two dimensions, the most bytes first.
std::string matrix_types(const WeightSource& weights);

}  // namespace headrace
