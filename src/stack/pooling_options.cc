#include "stack/pooling_options.h"

#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

std::optional<Pooling> pooling_of(PoolingChoice choice) {
  switch (choice) {
    case PoolingChoice::kMean:
      return Pooling::kMean;
    case PoolingChoice::kFirst:
      return Pooling::kFirst;
    case PoolingChoice::kLast:
      return Pooling::kLast;
    case PoolingChoice::kMax:
      return Pooling::kMax;
    case PoolingChoice::kModel:
    case PoolingChoice::kNone:
    case PoolingChoice::kRank:
      return std::nullopt;
  }
  return std::nullopt;
}

Status check_together(const PoolingOptions& options) {
  if (options.pooling == PoolingChoice::kNone) {
    return unsupported(
        "--pooling none is not supported: a text has one vector here: use last, mean, cls or max",
        "pooling");
  }
  const bool embeds = options.convert == ConvertChoice::kEmbed;
  if (embeds && (options.pooling == PoolingChoice::kRank || !options.classifier_tokens.empty())) {
    return invalid_argument("--convert embed makes vectors, and the other flags ask for scores",
                            "convert");
  }
  if (options.two_way && options.classifier_tokens.size() != 2) {
    return invalid_argument(
        fmt::format("--hf-overrides: classifier_from_token: two tokens are one against the other, "
                    "not {}",
                    options.classifier_tokens.size()),
        "hf-overrides");
  }
  return ok_status();
}

void classify_by_tokens(const PoolingOptions& options, PoolingConfig& config) {
  config.head_tokens = options.classifier_tokens;
  config.head.labels = options.classifier_tokens;
  config.head.classes = ScoreActivation::kSoftmax;
  config.positive_row.reset();
  if (options.two_way) {
    config.positive_row = 1;
    config.head.labels = {options.classifier_tokens[1]};
  }
  if (config.head.scores()) config.head.classes = ScoreActivation::kSigmoid;
}

}  // namespace

Result<std::optional<PoolingConfig>> choose_pooling(const PoolingOptions& options,
                                                    std::optional<PoolingConfig> in_files,
                                                    std::string_view source_path) {
  HR_RETURN_IF_ERROR(check_together(options));
  const bool generates = options.runner == RunnerChoice::kGenerate;
  if (generates || (!in_files && !options.asks())) return std::optional<PoolingConfig>();
  PoolingConfig config =
      in_files.value_or(PoolingConfig{.pooling = Pooling::kLast, .normalise = true});
  if (options.convert == ConvertChoice::kEmbed) config.head = {};
  if (!options.classifier_tokens.empty()) classify_by_tokens(options, config);
  const bool scores =
      options.convert == ConvertChoice::kClassify || options.pooling == PoolingChoice::kRank;
  if (scores && !config.head) {
    return unsupported(
        fmt::format("{}: the model has no head that tells classes: name tokens whose logits are "
                    "the classes, as --hf-overrides '{{\"classifier_from_token\": [\"no\", "
                    "\"yes\"], \"is_original_qwen3_reranker\": true}}'",
                    source_path),
        "convert");
  }
  config.pooling = pooling_of(options.pooling).value_or(config.pooling);
  config.normalise = options.normalise.value_or(config.normalise);
  return std::optional(std::move(config));
}

}  // namespace headrace
