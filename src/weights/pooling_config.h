// PoolingConfig: how a model's rows become one vector a text, or the logits of its classes: from
// the files that sentence-transformers writes beside a model (modules.json, 1_Pooling/config.json,
// sentence_*_config.json, config_sentence_transformers.json), config.json and GGUF metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/classifier_head.h"
#include "base/json.h"
#include "base/status.h"
#include "weights/gguf.h"

namespace headrace {

// How the last layer's rows become one vector.
enum class Pooling : uint8_t {
  kMean,   // of all rows
  kFirst,  // of the token in front of the text: [CLS], <s>
  kLast,   // of the last token
  kMax,    // column by column
};
std::string_view pooling_name(Pooling pooling);

enum class PoolingTask : uint8_t {
  kEmbed,     // a vector a text
  kClassify,  // a number a class
};

struct PoolingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalise = false;  // vectors have length 1
  int32_t length_max = 0;  // tokens of a text, special ones included; 0: the model's context
  ClassifierHead head;     // of a classifier
  // Of a decoder's head. Its rows are those of the output matrix for these tokens; empty: the
  // tensor cls.output.weight.
  std::vector<std::string> head_tokens;
  // The head has two rows, and its one class is this one against the other: a softmax of two
  // ("yes", "no") is the sigmoid of their difference.
  std::optional<int32_t> positive_row;
  // Two texts as one, {query} and {document} in it; empty: the file has no such template.
  std::string pair_template;
};

// What it gives of a text, for a person: "vectors of 384 numbers: pooling mean, of length 1".
std::string description_of(const PoolingConfig& config, int32_t hidden);

// The files, parsed; null: there is none.
struct PoolingFiles {
  Json config;
  Json modules;   // modules.json
  Json pooling;   // the configuration of its Pooling module
  Json sentence;  // the first of sentence_config_files() that there is
  Json library;   // config_sentence_transformers.json
  // What the two are called, for messages.
  std::string pooling_file;
  std::string sentence_file;
};
// `otherwise`: where there is no modules.json. Errors: "file: key: what". What the files ask for
// and this program has not is refused by name.
Result<PoolingConfig> pooling_config_from_json(const PoolingFiles& files, PoolingTask task,
                                               const PoolingConfig& otherwise,
                                               std::string_view folder);
// The names under which sentence-transformers looks for the settings of the Transformer module, in
// its order.
std::span<const std::string_view> sentence_config_files();
// The folder of the first Pooling module that modules.json names; "" where there is none.
std::string pooling_folder(const Json& modules);

// Of <architecture>.pooling_type, as llama.cpp's converter writes it; empty: the file says none,
// and is a model that generates.
Result<std::optional<PoolingConfig>> pooling_config_from_gguf(const GgufFile& file);

}  // namespace headrace
