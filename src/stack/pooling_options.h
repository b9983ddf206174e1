// PoolingOptions: whether a model gives vectors and scores instead of text, and which, where its
// files do not say it or somebody knows better. In the words of vLLM and llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/named.h"
#include "weights/encoder_config.h"
#include "weights/pooling_config.h"

namespace headrace {

enum class RunnerChoice : uint8_t {
  kAuto,  // as the model's files say
  kGenerate,
  kPooling,
};
inline constexpr Named<RunnerChoice> kRunnerChoices[] = {
    {"auto", RunnerChoice::kAuto},
    {"generate", RunnerChoice::kGenerate},
    {"pooling", RunnerChoice::kPooling},
};

enum class ConvertChoice : uint8_t {
  kAuto,  // as the model's files say, else vectors
  kNone,
  kEmbed,
  kClassify,
};
inline constexpr Named<ConvertChoice> kConvertChoices[] = {
    {"auto", ConvertChoice::kAuto},
    {"none", ConvertChoice::kNone},
    {"embed", ConvertChoice::kEmbed},
    {"classify", ConvertChoice::kClassify},
};

// llama.cpp's --pooling, whose `none` is a vector a token and `rank` a head's score.
enum class PoolingChoice : uint8_t { kModel, kNone, kMean, kFirst, kLast, kMax, kRank };
inline constexpr Named<PoolingChoice> kPoolingChoices[] = {
    {"model", PoolingChoice::kModel}, {"none", PoolingChoice::kNone},
    {"mean", PoolingChoice::kMean},   {"cls", PoolingChoice::kFirst},
    {"last", PoolingChoice::kLast},   {"max", PoolingChoice::kMax},
    {"rank", PoolingChoice::kRank},
};

struct PoolingOptions {
  RunnerChoice runner = RunnerChoice::kAuto;
  ConvertChoice convert = ConvertChoice::kAuto;
  PoolingChoice pooling = PoolingChoice::kModel;
  std::optional<bool> normalise;  // empty: as the model's files say
  // Tokens whose logits are the classes of a model that has no head for them (--hf-overrides).
  std::vector<std::string> classifier_tokens;
  bool two_way = false;  // two of them, and the score is the second's share of both

  bool asks() const {
    return runner == RunnerChoice::kPooling || convert == ConvertChoice::kEmbed ||
           convert == ConvertChoice::kClassify || pooling != PoolingChoice::kModel ||
           !classifier_tokens.empty();
  }
};

// What a decoder is to give, by its files and these options; empty: it generates text.
// `source_path` is for messages. kUnsupported, kInvalidArgument name the flag.
Result<std::optional<PoolingConfig>> choose_pooling(const PoolingOptions& options,
                                                    std::optional<PoolingConfig> in_files,
                                                    std::string_view source_path);

// An encoder gives what its folder says: kUnsupported names the flag that asks for anything else.
Status check_encoder_pooling(const PoolingOptions& options, const EncoderConfig& encoder,
                             std::string_view source_path);

}  // namespace headrace
