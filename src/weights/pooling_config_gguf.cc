// PoolingConfig from GGUF metadata, with the keys that llama.cpp's converter writes.
#include <fmt/format.h>

#include "weights/pooling_config.h"

namespace headrace {
namespace {

// llama.cpp's numbers.
enum GgufPooling : int64_t { kNone = 0, kMeanRows = 1, kFirstToken = 2, kLastToken = 3, kRank = 4 };

// The classes of cls.output.weight [classes, D], by name where the file has their names.
Result<std::vector<std::string>> read_gguf_labels(const GgufFile& file, std::string_view key) {
  constexpr int64_t kLabelsMax = 1 << 16;
  const GgufTensor* const rows = file.find_tensor("cls.output.weight");
  if (rows == nullptr) {
    return file.unsupported_field("tensor cls.output.weight",
                                  "missing, and without it the model scores no texts");
  }
  const int64_t count = rows->shape.rank() == 2 ? rows->shape[0] : 0;
  if (count < 1 || count > kLabelsMax) {
    return file.corrupt_field(
        "tensor cls.output.weight",
        fmt::format("shape {} is not of 1 to {} classes", rows->shape.to_string(), kLabelsMax));
  }
  std::vector<std::string> labels;
  HR_ASSIGN_OR_RETURN(const auto names, file.optional_array(key));
  if (!names) {
    for (int64_t i = 0; i < count; ++i) labels.push_back(fmt::format("LABEL_{}", i));
    return labels;
  }
  if (names->element_type() != GgufValueType::kString ||
      static_cast<int64_t>(names->size()) != count) {
    return file.corrupt_field(key, fmt::format("is no list of {} names", count));
  }
  for (const std::string_view name : names->strings()) labels.emplace_back(name);
  return labels;
}

Result<PoolingConfig> read_gguf_head(const GgufFile& file, std::string_view architecture) {
  PoolingConfig config;
  HR_ASSIGN_OR_RETURN(
      std::vector<std::string> labels,
      read_gguf_labels(file, fmt::format("{}.classifier.output_labels", architecture)));
  // Qwen3-Reranker: rows of "yes" and "no", of which the first one's share is the score.
  if (architecture == "qwen3" && labels.size() == 2) {
    config.positive_row = 0;
    labels.pop_back();
  }
  config.head.labels = std::move(labels);
  if (config.head.scores()) config.head.classes = ScoreActivation::kSigmoid;
  HR_ASSIGN_OR_RETURN(const auto text, file.optional_string("tokenizer.chat_template.rerank"));
  config.pair_template = std::string(text.value_or(""));
  return config;
}

}  // namespace

Result<std::optional<PoolingConfig>> pooling_config_from_gguf(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const auto architecture, file.optional_string("general.architecture"));
  const std::string key = fmt::format("{}.pooling_type", architecture.value_or(""));
  HR_ASSIGN_OR_RETURN(const auto type, file.optional_int(key));
  std::optional<PoolingConfig> config;
  switch (type.value_or(kNone)) {
    case kNone:
      return config;
    case kMeanRows:
      return config = PoolingConfig{.pooling = Pooling::kMean, .normalise = true};
    case kFirstToken:
      return config = PoolingConfig{.pooling = Pooling::kFirst, .normalise = true};
    case kLastToken:
      return config = PoolingConfig{.pooling = Pooling::kLast, .normalise = true};
    case kRank: {
      HR_ASSIGN_OR_RETURN(config, read_gguf_head(file, *architecture));
      return config;
    }
    default:
      return file.unsupported_field(key, fmt::format("{} is none that is known", *type));
  }
}

}  // namespace headrace
