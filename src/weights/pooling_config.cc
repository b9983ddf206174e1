#include "weights/pooling_config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr std::string_view kModulesFile = "modules.json";
constexpr std::string_view kLibraryFile = "config_sentence_transformers.json";
constexpr std::string_view kSentenceFiles[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};

// "sentence_transformers.models.Pooling" -> "Pooling"
std::string_view last_name(std::string_view type) { return type.substr(type.rfind('.') + 1); }

class PoolingConfigReader {
 public:
  PoolingConfigReader(const PoolingFiles& files, const PoolingConfig& otherwise,
                      std::string_view folder)
      : files_(files), folder_(folder), config_(otherwise) {}

  Result<PoolingConfig> read(PoolingTask task) {
    HR_RETURN_IF_ERROR(task == PoolingTask::kClassify ? read_head() : read_modules());
    HR_RETURN_IF_ERROR(read_sentence());
    return std::move(config_);
  }

 private:
  std::string where(std::string_view file, std::string_view key) const {
    return fmt::format("{}: {}: {}", folder_, file, key);
  }
  Status corrupt_key(std::string_view file, std::string_view key, std::string_view what) const {
    return corrupt(fmt::format("{}: {}", where(file, key), what), std::string(key));
  }
  Status unsupported_key(std::string_view file, std::string_view key, std::string_view what) const {
    return unsupported(fmt::format("{}: {}", where(file, key), what), std::string(key));
  }
  static const Json* find(const Json& object, std::string_view key) {
    const Json* member = object.is_object() ? object.find(key) : nullptr;
    return member == nullptr || member->is_null() ? nullptr : member;
  }

  Status read_head() {
    HR_RETURN_IF_ERROR(read_labels());
    HR_RETURN_IF_ERROR(read_class_activation());
    return read_score_activation();
  }

  // By class: id2label, or as many names as num_labels says. Files leave out what is transformers'
  // default, two classes.
  Status read_labels() {
    constexpr int32_t kLabelsMax = 1 << 16;
    std::vector<std::string>& labels = config_.head.labels;
    const Json* names = find(files_.config, "id2label");
    if (names == nullptr) {
      const Json* number = find(files_.config, "num_labels");
      const int64_t count = number == nullptr ? 2 : number->is_int() ? number->as_int() : 0;
      if (count < 1 || count > kLabelsMax) {
        return corrupt_key("config.json", "num_labels",
                           fmt::format("is no integer in [1, {}]", kLabelsMax));
      }
      for (int64_t i = 0; i < count; ++i) labels.push_back(fmt::format("LABEL_{}", i));
      return ok_status();
    }
    const size_t count = names->is_object() ? names->as_object().size() : 0;
    if (count < 1 || count > kLabelsMax) {
      return corrupt_key("config.json", "id2label",
                         fmt::format("is no object of 1 to {} labels", kLabelsMax));
    }
    for (size_t i = 0; i < count; ++i) {
      const Json* label = names->find(std::to_string(i));
      if (label == nullptr || !label->is_string()) {
        return corrupt_key("config.json", "id2label", fmt::format("has no label \"{}\"", i));
      }
      labels.push_back(label->as_string());
    }
    return ok_status();
  }

  ScoreActivation usual_activation() const {
    return config_.head.scores() ? ScoreActivation::kSigmoid : ScoreActivation::kSoftmax;
  }

  // By what transformers would train the head for.
  Status read_class_activation() {
    const Json* problem = find(files_.config, "problem_type");
    config_.head.classes = usual_activation();
    if (problem == nullptr || *problem == Json("single_label_classification")) return ok_status();
    if (*problem == Json("regression")) {
      config_.head.classes = ScoreActivation::kIdentity;
    } else if (*problem == Json("multi_label_classification")) {
      config_.head.classes = ScoreActivation::kSigmoid;
    } else {
      return unsupported_key("config.json", "problem_type", "is none that is known");
    }
    return ok_status();
  }

  // The class of torch.nn that sentence-transformers calls. Its versions wrote it in three places.
  Status read_score_activation() {
    config_.head.score = usual_activation();
    const Json* inner = find(files_.config, "sentence_transformers");
    const struct {
      std::string_view file, key;
      const Json* name;
    } places[] = {
        {kLibraryFile, "activation_fn", find(files_.library, "activation_fn")},
        {"config.json", "sentence_transformers.activation_fn",
         inner == nullptr ? nullptr : find(*inner, "activation_fn")},
        {"config.json", "sbert_ce_default_activation_function",
         find(files_.config, "sbert_ce_default_activation_function")},
    };
    for (const auto& place : places) {
      if (place.name == nullptr) continue;
      const auto read = activation_of(*place.name);
      if (!read) {
        return unsupported_key(place.file, place.key,
                               "only Identity, Sigmoid and Softmax are supported");
      }
      config_.head.score = *read;
      break;
    }
    return ok_status();
  }

  // "torch.nn.modules.activation.Sigmoid"
  std::optional<ScoreActivation> activation_of(const Json& name) const {
    const std::string_view function = name.is_string() ? last_name(name.as_string()) : "";
    if (function == "Identity") return ScoreActivation::kIdentity;
    if (function == "Sigmoid") return ScoreActivation::kSigmoid;
    if (function == "Softmax") return usual_activation();  // of one class it would say nothing
    return std::nullopt;
  }

  // Without modules.json it is as whoever asks has it.
  Status read_modules() {
    if (files_.modules.is_null()) return ok_status();
    if (!files_.modules.is_array()) return corrupt_key(kModulesFile, "(all)", "is no list");
    const Json::Array& modules = files_.modules.as_array();
    for (size_t place = 0; place < modules.size(); ++place) {
      HR_RETURN_IF_ERROR(read_module(modules[place], place));
    }
    if (modules.size() >= 2) return ok_status();
    return unsupported_key(kModulesFile, "(all)", "a Transformer and a Pooling are needed");
  }

  Status read_module(const Json& module, size_t place) {
    constexpr std::string_view kOrder[] = {"Transformer", "Pooling", "Normalize"};
    for (const char* key : {"type", "path"}) {
      const Json* value = find(module, key);
      if (value == nullptr || !value->is_string()) {
        return corrupt_key(kModulesFile, key, "is no text");
      }
    }
    const std::string_view name = last_name(find(module, "type")->as_string());
    if (std::ranges::find(kOrder, name) == std::end(kOrder)) {
      return unsupported_key(kModulesFile, "type",
                             fmt::format("{} is not supported", printable(name)));
    }
    if (place >= std::size(kOrder) || kOrder[place] != name) {
      return unsupported_key(kModulesFile, "type",
                             fmt::format("{} as module {} is not supported: only Transformer, "
                                         "Pooling and Normalize are, once and in this order",
                                         name, place));
    }
    config_.normalise = config_.normalise || name == "Normalize";
    if (name == "Pooling") return read_pooling();
    if (name == "Normalize" || find(module, "path")->as_string().empty()) return ok_status();
    return unsupported_key(kModulesFile, "path",
                           "a Transformer in a folder of its own is not read");
  }

  // One of several flags, or in newer files a name.
  Status read_pooling() {
    constexpr struct {
      std::string_view flag, name;
      std::optional<Pooling> pooling;
    } kKinds[] = {
        {"pooling_mode_cls_token", "cls", Pooling::kFirst},
        {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
        {"pooling_mode_max_tokens", "max", Pooling::kMax},
        {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", std::nullopt},
        {"pooling_mode_weightedmean_tokens", "weightedmean", std::nullopt},
    };
    if (files_.pooling_file.empty()) {
      return corrupt_key(kModulesFile, "path", "of Pooling names no folder");
    }
    if (files_.pooling.is_null()) {
      return corrupt(fmt::format("{}: {}: there is no such file", folder_, files_.pooling_file));
    }
    if (!files_.pooling.is_object()) {
      return corrupt_key(files_.pooling_file, "(all)", "is no object");
    }
    const Json* mode = find(files_.pooling, "pooling_mode");
    int found = 0;
    for (const auto& kind : kKinds) {
      const Json* flag = find(files_.pooling, kind.flag);
      const bool chosen =
          mode != nullptr ? *mode == Json(kind.name) : flag != nullptr && *flag == Json(true);
      if (!chosen) continue;
      if (!kind.pooling || ++found > 1) {
        return unsupported_key(files_.pooling_file, kind.flag,
                               found > 1 ? "more than one kind of pooling" : "is not supported");
      }
      config_.pooling = *kind.pooling;
    }
    if (found == 1) return ok_status();
    return unsupported_key(files_.pooling_file, "pooling_mode",
                           "names no kind of pooling that is known");
  }

  Status read_sentence() {
    if (files_.sentence.is_null()) return ok_status();
    const std::string& file = files_.sentence_file;
    if (!files_.sentence.is_object()) return corrupt_key(file, "(all)", "is no object");
    const Json* lower = find(files_.sentence, "do_lower_case");
    if (lower != nullptr && *lower != Json(false)) {
      return unsupported_key(file, "do_lower_case", "only false is supported");
    }
    const Json* length = find(files_.sentence, "max_seq_length");
    if (length == nullptr) return ok_status();
    if (!length->is_int() || length->as_int() < 1) {
      return corrupt_key(file, "max_seq_length", "is no positive integer");
    }
    config_.length_max = static_cast<int32_t>(std::min<int64_t>(length->as_int(), INT32_MAX));
    return ok_status();
  }

  const PoolingFiles& files_;
  const std::string_view folder_;
  PoolingConfig config_;
};

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return "mean";
    case Pooling::kFirst:
      return "first token";
    case Pooling::kLast:
      return "last token";
    case Pooling::kMax:
      return "max";
  }
  return "";
}

std::string description_of(const PoolingConfig& config, int32_t hidden) {
  if (config.head.scores()) return "scores of pairs of texts";
  if (config.head) return fmt::format("{} classes", config.head.labels.size());
  return fmt::format("vectors of {} numbers: pooling {}, {}", hidden, pooling_name(config.pooling),
                     config.normalise ? "of length 1" : "not normalised");
}

Result<PoolingConfig> pooling_config_from_json(const PoolingFiles& files, PoolingTask task,
                                               const PoolingConfig& otherwise,
                                               std::string_view folder) {
  return PoolingConfigReader(files, otherwise, folder).read(task);
}

std::span<const std::string_view> sentence_config_files() { return kSentenceFiles; }

std::string pooling_folder(const Json& modules) {
  if (!modules.is_array()) return "";
  for (const Json& module : modules.as_array()) {
    const Json* type = module.is_object() ? module.find("type") : nullptr;
    const Json* path = module.is_object() ? module.find("path") : nullptr;
    const bool pools =
        type != nullptr && type->is_string() && last_name(type->as_string()) == "Pooling";
    if (pools && path != nullptr && path->is_string()) return path->as_string();
  }
  return "";
}

}  // namespace headrace
