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

// llama.cpp's `--embedding --pooling rank` asks for scores.
bool embeds(const PoolingOptions& options) {
  return options.convert == ConvertChoice::kEmbed && options.pooling != PoolingChoice::kRank;
}

Status check_together(const PoolingOptions& options) {
  if (options.pooling == PoolingChoice::kNone) {
    return unsupported(
        "--pooling none is not supported: a text has one vector here: use last, mean, cls or max",
        "pooling");
  }
  if (embeds(options) && !options.classifier_tokens.empty()) {
    return invalid_argument(
        "--convert embed (--embedding) makes vectors, and --hf-overrides asks for scores",
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
  if (embeds(options)) config.head = {};
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

Status check_encoder_pooling(const PoolingOptions& options, const EncoderConfig& encoder,
                             std::string_view source_path) {
  const bool classifies = static_cast<bool>(encoder.head);
  const bool asks_scores =
      options.convert == ConvertChoice::kClassify || options.pooling == PoolingChoice::kRank;
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    return unsupported(fmt::format("{}: {}: {}", source_path, flag, why), std::string(flag));
  };
  if (asks_scores && !classifies) return refuse("--rerank", "the encoder has no classifier's head");
  if (embeds(options) && classifies) return refuse("--embedding", "the encoder is a classifier");
  const std::optional<Pooling> pooling = pooling_of(options.pooling);
  const bool other_rows =
      pooling ? classifies || *pooling != encoder.pooling : options.pooling == PoolingChoice::kNone;
  if (other_rows || options.normalise.value_or(encoder.normalise) != encoder.normalise) {
    return refuse("--pooling, --pooler-config", "an encoder pools as its folder says");
  }
  if (!options.classifier_tokens.empty()) {
    return refuse("--hf-overrides", "an encoder has no output matrix for tokens");
  }
  return ok_status();
}

}  // namespace headrace
