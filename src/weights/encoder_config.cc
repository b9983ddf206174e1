#include "weights/encoder_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "weights/model_config.h"

namespace headrace {
namespace {

struct EncoderClass {
  std::string_view name;
  std::string_view architecture;
  bool classifies = false;
};
constexpr EncoderClass kEncoderClasses[] = {
    {"BertModel", "bert"},
    {"BertForMaskedLM", "bert"},
    {"BertForPreTraining", "bert"},
    {"RobertaModel", "roberta"},
    {"RobertaForMaskedLM", "roberta"},
    {"XLMRobertaModel", "roberta"},
    {"XLMRobertaForMaskedLM", "roberta"},
    {"CamembertModel", "roberta"},
    {"MPNetModel", "mpnet"},
    {"MPNetForMaskedLM", "mpnet"},
    {"BertForSequenceClassification", "bert", true},
    {"RobertaForSequenceClassification", "roberta", true},
    {"XLMRobertaForSequenceClassification", "roberta", true},
    {"CamembertForSequenceClassification", "roberta", true},
    {"MPNetForSequenceClassification", "mpnet", true},
    {"ModernBertModel", "modernbert"},
    {"ModernBertForMaskedLM", "modernbert"},
    {"ModernBertForSequenceClassification", "modernbert", true},
};

const EncoderClass* find_class(std::string_view name) {
  const auto* found = std::find_if(std::begin(kEncoderClasses), std::end(kEncoderClasses),
                                   [&](const EncoderClass& known) { return known.name == name; });
  return found == std::end(kEncoderClasses) ? nullptr : found;
}

class EncoderConfigReader {
 public:
  EncoderConfigReader(const PoolingFiles& files, std::string_view folder)
      : files_(files), folder_(folder) {}

  Result<EncoderConfig> read() {
    HR_RETURN_IF_ERROR(read_class());
    HR_RETURN_IF_ERROR(read_sizes());
    if (config_.architecture == "modernbert") {
      HR_RETURN_IF_ERROR(read_modern());
    } else {
      HR_RETURN_IF_ERROR(read_features());
    }
    HR_RETURN_IF_ERROR(read_pooling());
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

  Status read_class() {
    const Json* list = find(files_.config, "architectures");
    const bool named = list != nullptr && list->is_array() && !list->as_array().empty() &&
                       list->as_array()[0].is_string();
    if (!named) return corrupt_key("config.json", "architectures", "is no list of names");
    const std::string& name = list->as_array()[0].as_string();
    const EncoderClass* known = find_class(name);
    if (known == nullptr) {
      return unsupported_key("config.json", "architectures",
                             fmt::format("{} is no encoder that is known", printable(name)));
    }
    config_.architecture = known->architecture;
    classifies_ = known->classifies;
    return ok_status();
  }

  // A whole number in [low, high] of config.json.
  Status read_size(std::string_view key, int32_t low, int32_t high, int32_t& size) const {
    const Json* member = find(files_.config, key);
    if (member == nullptr) return corrupt_key("config.json", key, "missing");
    if (!member->is_int() || member->as_int() < low || member->as_int() > high) {
      return corrupt_key("config.json", key, fmt::format("is no integer in [{}, {}]", low, high));
    }
    size = static_cast<int32_t>(member->as_int());
    return ok_status();
  }

  Status read_sizes() {
    constexpr const ModelLimits& kLimits = kModelLimits;
    HR_RETURN_IF_ERROR(read_size("vocab_size", 1, kLimits.vocab_max, config_.vocab));
    HR_RETURN_IF_ERROR(read_size("hidden_size", 1, kLimits.hidden_max, config_.hidden));
    HR_RETURN_IF_ERROR(read_size("num_hidden_layers", 1, kLimits.layers_max, config_.layers));
    HR_RETURN_IF_ERROR(read_size("num_attention_heads", 1, kLimits.heads_max, config_.heads));
    HR_RETURN_IF_ERROR(read_size("intermediate_size", 1, kLimits.ffn_max, config_.ffn));
    HR_RETURN_IF_ERROR(read_size("max_position_embeddings", 1, kPositionsMax, config_.positions));
    const bool modern = config_.architecture == "modernbert";
    if (config_.architecture == "mpnet") {
      HR_RETURN_IF_ERROR(
          read_size("relative_attention_num_buckets", 4, 1024, config_.relative_buckets));
    } else if (!modern) {
      HR_RETURN_IF_ERROR(read_size("type_vocab_size", 0, 1024, config_.token_types));
    }
    if (config_.architecture != "bert" && !modern) {
      int32_t pad = 0;
      HR_RETURN_IF_ERROR(read_size("pad_token_id", 0, config_.vocab - 1, pad));
      config_.position_first = pad + 1;
    }
    if (config_.hidden % config_.heads != 0) {
      return corrupt_key("config.json", "num_attention_heads", "does not divide hidden_size");
    }
    if (config_.position_first >= config_.positions) {
      return corrupt_key("config.json", "max_position_embeddings", "leaves no place for a text");
    }
    return ok_status();
  }

  Status read_norm_eps(std::string_view key) {
    const Json* eps = find(files_.config, key);
    if (eps == nullptr || !eps->is_number() || !(eps->as_double() > 0 && eps->as_double() < 1)) {
      return corrupt_key("config.json", key, "is no number between 0 and 1");
    }
    config_.norm_eps = static_cast<float>(eps->as_double());
    return ok_status();
  }

  Status read_activation(std::string_view key) {
    const Json* activation = find(files_.config, key);
    const std::string name =
        activation != nullptr && activation->is_string() ? activation->as_string() : "";
    config_.gelu_tanh = name == "gelu_new" || name == "gelu_pytorch_tanh";
    if (name == "gelu" || config_.gelu_tanh) return ok_status();
    return unsupported_key("config.json", key,
                           "only \"gelu\", \"gelu_new\" and \"gelu_pytorch_tanh\" are supported");
  }

  Status read_features() {
    HR_RETURN_IF_ERROR(read_norm_eps("layer_norm_eps"));
    const Json* kind = find(files_.config, "position_embedding_type");
    if (kind != nullptr && *kind != Json("absolute")) {
      return unsupported_key("config.json", "position_embedding_type",
                             "only \"absolute\" is supported");
    }
    const Json* decoder = find(files_.config, "is_decoder");
    if (decoder != nullptr && *decoder != Json(false)) {
      return unsupported_key("config.json", "is_decoder", "only false is supported");
    }
    return read_activation("hidden_act");
  }

  // --- ModernBERT ---

  Status read_flag(std::string_view key, bool& flag) const {
    const Json* member = find(files_.config, key);
    if (member == nullptr) return ok_status();
    if (!member->is_bool()) return corrupt_key("config.json", key, "is not true or false");
    flag = member->as_bool();
    return ok_status();
  }

  // `old_key` of files that were written before rope_parameters.
  Status read_theta(std::string_view layers, std::string_view old_key, double otherwise,
                    double& theta) const {
    const Json* member = find(files_.config, old_key);
    std::string_view key = old_key;
    if (const Json* all = find(files_.config, "rope_parameters")) {
      key = "rope_parameters";
      const Json* own = find(*all, layers);
      const Json* type = own == nullptr ? nullptr : find(*own, "rope_type");
      if (type != nullptr && *type != Json("default")) {
        return unsupported_key("config.json", key, "only rope_type \"default\" is supported");
      }
      if (own != nullptr && find(*own, "rope_theta")) member = find(*own, "rope_theta");
    }
    theta = otherwise;
    if (member == nullptr) return ok_status();
    if (!member->is_number() || !(member->as_double() > 1 && member->as_double() < 1e12)) {
      return corrupt_key("config.json", key, "has a base that is no number between 1 and 1e12");
    }
    theta = member->as_double();
    return ok_status();
  }

  // layer_types, else every so many layers see all.
  Status read_layer_kinds(ModernEncoder& modern) const {
    const auto count = static_cast<size_t>(config_.layers);
    const Json* types = find(files_.config, "layer_types");
    if (types == nullptr) {
      int32_t every = 3;
      constexpr std::string_view kEvery = "global_attn_every_n_layers";
      if (find(files_.config, kEvery)) HR_RETURN_IF_ERROR(read_size(kEvery, 1, 1 << 20, every));
      for (size_t i = 0; i < count; ++i) modern.local.push_back(i % every != 0);
      return ok_status();
    }
    if (!types->is_array() || types->as_array().size() != count) {
      return corrupt_key("config.json", "layer_types", "is no list with an entry for each layer");
    }
    for (const Json& type : types->as_array()) {
      if (type != Json("sliding_attention") && type != Json("full_attention")) {
        return unsupported_key("config.json", "layer_types",
                               "only sliding_attention and full_attention are supported");
      }
      modern.local.push_back(type == Json("sliding_attention"));
    }
    return ok_status();
  }

  Status read_modern() {
    ModernEncoder& modern = config_.modern.emplace();
    HR_RETURN_IF_ERROR(read_norm_eps("norm_eps"));
    HR_RETURN_IF_ERROR(read_activation("hidden_activation"));
    if (find(files_.config, "rope_scaling")) {
      return unsupported_key("config.json", "rope_scaling", "is not supported");
    }
    HR_RETURN_IF_ERROR(read_theta("full_attention", "global_rope_theta", 160000, modern.theta));
    HR_RETURN_IF_ERROR(
        read_theta("sliding_attention", "local_rope_theta", 10000, modern.local_theta));
    int32_t local = 128;
    if (find(files_.config, "local_attention")) {
      HR_RETURN_IF_ERROR(read_size("local_attention", 2, 1 << 24, local));
    }
    modern.window = local / 2;
    HR_RETURN_IF_ERROR(read_layer_kinds(modern));
    HR_RETURN_IF_ERROR(read_flag("attention_bias", modern.attention_bias));
    HR_RETURN_IF_ERROR(read_flag("mlp_bias", modern.ffn_bias));
    HR_RETURN_IF_ERROR(read_flag("norm_bias", modern.norm_bias));
    HR_RETURN_IF_ERROR(read_flag("classifier_bias", modern.head_bias));
    const Json* head = find(files_.config, "classifier_activation");
    if (classifies_ && head != nullptr && *head != Json("gelu")) {
      return unsupported_key("config.json", "classifier_activation", "only \"gelu\" is supported");
    }
    if (config_.head_dim() % 2 == 0) return ok_status();
    return corrupt_key("config.json", "num_attention_heads", "makes heads of an odd width");
  }

  // Of a classifier: which rows its head is of.
  Status read_classifier_pooling() {
    config_.pooling = Pooling::kFirst;
    if (!config_.modern) return ok_status();
    const Json* pooling = find(files_.config, "classifier_pooling");
    if (pooling == nullptr || *pooling == Json("cls")) return ok_status();
    config_.pooling = Pooling::kMean;
    if (*pooling == Json("mean")) return ok_status();
    return unsupported_key("config.json", "classifier_pooling",
                           "only \"cls\" and \"mean\" are supported");
  }

  Status read_pooling() {
    // Without modules.json, vectors are the mean of the rows, as sentence-transformers has it.
    HR_ASSIGN_OR_RETURN(
        const PoolingConfig read,
        pooling_config_from_json(files_, classifies_ ? PoolingTask::kClassify : PoolingTask::kEmbed,
                                 {.pooling = Pooling::kMean}, folder_));
    config_.pooling = read.pooling;
    config_.normalise = read.normalise;
    config_.head = read.head;
    config_.length_max = config_.positions - config_.position_first;
    if (classifies_) HR_RETURN_IF_ERROR(read_classifier_pooling());
    if (read.length_max > 0) config_.length_max = std::min(config_.length_max, read.length_max);
    return ok_status();
  }

  // Scratch memory goes with a text's length; encoders with learned positions have 512 or 8,192.
  static constexpr int32_t kPositionsMax = 1 << 16;

  const PoolingFiles& files_;
  const std::string_view folder_;
  bool classifies_ = false;
  EncoderConfig config_;
};

// With and without the name of the model in front, as heads' checkpoints have it.
#define HR_ENCODER_NAMES(prefix)                                                                   \
  {prefix "embeddings.word_embeddings.weight", "token_embd.weight"},                               \
      {prefix "embeddings.position_embeddings.weight", "position_embd.weight"},                    \
      {prefix "embeddings.token_type_embeddings.weight", "token_types.weight"},                    \
      {prefix "embeddings.LayerNorm.weight", "token_embd_norm.weight"},                            \
      {prefix "embeddings.LayerNorm.bias", "token_embd_norm.bias"},                                \
      {prefix "embeddings.LayerNorm.gamma", "token_embd_norm.weight"},                             \
      {prefix "embeddings.LayerNorm.beta", "token_embd_norm.bias"},                                \
      {prefix "embeddings.position_ids", ""}, {prefix "embeddings.token_type_ids", ""},            \
      {prefix "encoder.relative_attention_bias.weight", "attn_rel_b.weight"},                      \
      {prefix "encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight"},             \
      {prefix "encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias"},                 \
      {prefix "encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight"},               \
      {prefix "encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias"},                   \
      {prefix "encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight"},             \
      {prefix "encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias"},                 \
      {prefix "encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight"},      \
      {prefix "encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias"},          \
      {prefix "encoder.layer.{}.attention.output.LayerNorm.weight",                                \
       "blk.{}.attn_output_norm.weight"},                                                          \
      {prefix "encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias"}, \
      {prefix "encoder.layer.{}.attention.output.LayerNorm.gamma",                                 \
       "blk.{}.attn_output_norm.weight"},                                                          \
      {prefix "encoder.layer.{}.attention.output.LayerNorm.beta", "blk.{}.attn_output_norm.bias"}, \
      {prefix "encoder.layer.{}.attention.attn.q.weight", "blk.{}.attn_q.weight"},                 \
      {prefix "encoder.layer.{}.attention.attn.q.bias", "blk.{}.attn_q.bias"},                     \
      {prefix "encoder.layer.{}.attention.attn.k.weight", "blk.{}.attn_k.weight"},                 \
      {prefix "encoder.layer.{}.attention.attn.k.bias", "blk.{}.attn_k.bias"},                     \
      {prefix "encoder.layer.{}.attention.attn.v.weight", "blk.{}.attn_v.weight"},                 \
      {prefix "encoder.layer.{}.attention.attn.v.bias", "blk.{}.attn_v.bias"},                     \
      {prefix "encoder.layer.{}.attention.attn.o.weight", "blk.{}.attn_output.weight"},            \
      {prefix "encoder.layer.{}.attention.attn.o.bias", "blk.{}.attn_output.bias"},                \
      {prefix "encoder.layer.{}.attention.LayerNorm.weight", "blk.{}.attn_output_norm.weight"},    \
      {prefix "encoder.layer.{}.attention.LayerNorm.bias", "blk.{}.attn_output_norm.bias"},        \
      {prefix "encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight"},               \
      {prefix "encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias"},                   \
      {prefix "encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight"},                   \
      {prefix "encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias"},                       \
      {prefix "encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight"},      \
      {prefix "encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias"},          \
      {prefix "encoder.layer.{}.output.LayerNorm.gamma", "blk.{}.layer_output_norm.weight"},       \
      {prefix "encoder.layer.{}.output.LayerNorm.beta", "blk.{}.layer_output_norm.bias"}, {        \
    prefix "pooler.*", ""                                                                          \
  }

constexpr HfTensorName kEncoderNames[] = {
    HR_ENCODER_NAMES(""),
    HR_ENCODER_NAMES("bert."),
    HR_ENCODER_NAMES("roberta."),
    HR_ENCODER_NAMES("mpnet."),
    {"cls.*", ""},
    {"lm_head.*", ""},
};

// BERT's dense layer is its pooler.
constexpr HfTensorName kBertClassifierNames[] = {
    {"bert.pooler.dense.weight", "cls.weight"},
    {"bert.pooler.dense.bias", "cls.bias"},
    {"classifier.weight", "cls.output.weight"},
    {"classifier.bias", "cls.output.bias"},
    HR_ENCODER_NAMES("bert."),
};

constexpr HfTensorName kClassifierNames[] = {
    {"classifier.dense.weight", "cls.weight"},
    {"classifier.dense.bias", "cls.bias"},
    {"classifier.out_proj.weight", "cls.output.weight"},
    {"classifier.out_proj.bias", "cls.output.bias"},
    HR_ENCODER_NAMES("roberta."),
    HR_ENCODER_NAMES("mpnet."),
};
#undef HR_ENCODER_NAMES

#define HR_MODERN_NAMES(prefix)                                         \
  {prefix "embeddings.tok_embeddings.weight", "token_embd.weight"},     \
      {prefix "embeddings.norm.weight", "token_embd_norm.weight"},      \
      {prefix "embeddings.norm.bias", "token_embd_norm.bias"},          \
      {prefix "layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight"}, \
      {prefix "layers.{}.attn_norm.bias", "blk.{}.attn_norm.bias"},     \
      {prefix "layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},  \
      {prefix "layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias"},      \
      {prefix "layers.{}.attn.Wo.weight", "blk.{}.attn_output.weight"}, \
      {prefix "layers.{}.attn.Wo.bias", "blk.{}.attn_output.bias"},     \
      {prefix "layers.{}.mlp_norm.weight", "blk.{}.ffn_norm.weight"},   \
      {prefix "layers.{}.mlp_norm.bias", "blk.{}.ffn_norm.bias"},       \
      {prefix "layers.{}.mlp.Wi.weight", "blk.{}.ffn_up.weight"},       \
      {prefix "layers.{}.mlp.Wi.bias", "blk.{}.ffn_up.bias"},           \
      {prefix "layers.{}.mlp.Wo.weight", "blk.{}.ffn_down.weight"},     \
      {prefix "layers.{}.mlp.Wo.bias", "blk.{}.ffn_down.bias"},         \
      {prefix "final_norm.weight", "output_norm.weight"}, {             \
    prefix "final_norm.bias", "output_norm.bias"                        \
  }

constexpr HfTensorName kModernNames[] = {
    HR_MODERN_NAMES(""),
    HR_MODERN_NAMES("model."),
    {"head.*", ""},
    {"decoder.*", ""},
};

constexpr HfTensorName kModernClassifierNames[] = {
    {"head.dense.weight", "cls.weight"},
    {"head.dense.bias", "cls.bias"},
    {"head.norm.weight", "cls.norm.weight"},
    {"head.norm.bias", "cls.norm.bias"},
    {"classifier.weight", "cls.output.weight"},
    {"classifier.bias", "cls.output.bias"},
    HR_MODERN_NAMES("model."),
};
#undef HR_MODERN_NAMES

}  // namespace

bool is_encoder_class(std::string_view name) { return find_class(name) != nullptr; }

Result<EncoderConfig> encoder_config_from_json(const PoolingFiles& files, std::string_view folder) {
  return EncoderConfigReader(files, folder).read();
}

// Half of the buckets are of keys behind the query. Of each half the first half are exact
// distances, the others grow with the logarithm up to kFarthest.
int32_t relative_bucket(int32_t distance, int32_t buckets) {
  constexpr int32_t kFarthest = 128;
  const int32_t half = buckets / 2;
  const int32_t exact = half / 2;
  const int32_t first = distance > 0 ? half : 0;
  const int32_t apart = std::abs(distance);
  if (apart < exact) return first + apart;
  // In float, as the models were trained: borders between buckets are powers of two.
  const auto ratio = [exact](int32_t tokens) {
    return std::log(static_cast<float>(tokens) / static_cast<float>(exact));
  };
  const float share = ratio(apart) / ratio(kFarthest);
  const auto far = exact + static_cast<int32_t>(share * static_cast<float>(half - exact));
  return first + std::min(far, half - 1);
}

HfTensorNames encoder_hf_names(const EncoderConfig& config) {
  if (config.modern && config.head) return kModernClassifierNames;
  if (config.modern) return kModernNames;
  if (!config.head) return kEncoderNames;
  if (config.architecture == "bert") return kBertClassifierNames;
  return kClassifierNames;
}

}  // namespace headrace
