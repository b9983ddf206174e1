// Opens what a user names as a model and makes of it the values that the rest of the program takes:
// sizes, weights, vocabulary, template. Here weights, models and text meet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/model.h"
#include "text/vocab.h"
#include "weights/gguf.h"
#include "weights/model_config.h"
#include "weights/weight_source.h"

namespace headrace {

struct ModelOpenOptions {
  std::string load_format = "auto";  // auto or gguf: the weights of a file; dummy: random ones
  uint64_t seed = 0;                 // of dummy weights
  DType dummy_dtype = DType::kBF16;  // of dummy matrices
  int32_t threads = 1;               // that make dummy weights
};

struct ModelFiles {
  std::string name;  // file name without extension, or the folder's name
  ModelConfig config;
  std::shared_ptr<WeightSource> weights;
  std::optional<Vocab> vocab;  // empty: the model has token ids only
  std::string chat_template;   // empty = none
  std::string weight_types;    // of matrices, the largest share first: "Q4_1 + Q8_0"
  int64_t parameter_count = 0;
  int64_t file_bytes = 0;  // 0 for dummy weights
};

// `path`: a .gguf file; with load_format "dummy" a config.json, a folder with one, or a .gguf file
// (its sizes and vocabulary are used). All tensors that the architecture reads are checked for
// presence, shape and type; a tensor that it would ignore is refused, since ignoring it would
// give wrong answers. Errors are one line that names file and field.
Result<ModelFiles> open_model(const std::string& path, const ModelOpenOptions& options = {});

// Holds the file's tensors against those that the architecture declares.
Status check_tensors(const GgufFile& file, const Architecture& architecture,
                     const ModelConfig& config);

// "Q4_1 + Q8_0": types of the tensors with at least two dimensions, the most bytes first.
std::string matrix_types(const GgufFile& file);

}  // namespace headrace
