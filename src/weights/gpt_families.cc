#include "weights/gpt_families.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

void set_defaults(ModelConfig& config, int32_t context_length) {
  config.rope_theta = 1e4;
  config.context_length = context_length;
  config.rms_eps = 1e-5f;
}
void set_biases(ModelConfig& config) {
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
}

// Flags of which one value is computed.
struct OneValue {
  std::string_view architecture, name;
  bool value;
};
constexpr OneValue kOneValues[] = {
    {"gpt2", "scale_attn_weights", true},
    {"gpt2", "scale_attn_by_inverse_layer_idx", false},
    {"gpt2", "add_cross_attention", false},
    {"starcoder", "scale_attn_weights", true},
    {"starcoder", "add_cross_attention", false},
    {"opt", "do_layer_norm_before", true},
    {"opt", "enable_bias", true},
    {"opt", "layer_norm_elementwise_affine", true},
    {"opt", "_remove_final_layer_norm", false},
    {"falcon", "alibi", false},
    {"bloom", "apply_residual_connection_post_layernorm", false},
    {"mpt", "no_bias", true},
    {"xglm", "add_cross_attention", false},
};

Status check_one_values(const Json& json, const ConfigSource& source) {
  for (const OneValue& flag : kOneValues) {
    if (flag.architecture != source.family->architecture) continue;
    HR_ASSIGN_OR_RETURN(const bool value, flag_or(json, source, flag.name, flag.value));
    if (value == flag.value) continue;
    return source.unsupported_field(flag.name,
                                    fmt::format("{} is not supported, only {}", value, flag.value));
  }
  return ok_status();
}

Status read_big_code(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_ASSIGN_OR_RETURN(const bool one_key_head, flag_or(json, source, "multi_query", true));
  config.kv_heads = one_key_head ? 1 : config.heads;
  config.fused.qkv_by_head = !one_key_head;
  return ok_status();
}

// OPT-350M projects its embeddings.
Status check_opt(const Json& json, const ConfigSource& source, const ModelConfig& config) {
  constexpr std::string_view kWidth = "word_embed_proj_dim";
  const Json* width = json.find(kWidth);
  if (width == nullptr || width->is_null()) return ok_status();
  if (width->is_int() && width->as_int() == config.hidden) return ok_status();
  return source.unsupported_field(
      kWidth, fmt::format("is not supported, only that of hidden_size, {}", config.hidden));
}

// Positions are made when a model is loaded, so many as a file says. CTRL's class knows one eps of
// the norms of layers.
Status check_waves(const ConfigSource& source, const ModelConfig& config) {
  constexpr int32_t kPositionsMax = 1 << 16;
  constexpr float kCtrlEps = 1e-6f;
  if (config.context_length > kPositionsMax) {
    return source.corrupt_field(
        config.architecture == "ctrl" ? "n_positions" : "max_position_embeddings",
        fmt::format("{} is outside 1 to {}", config.context_length, kPositionsMax));
  }
  if (config.hidden % 2 != 0) {
    return source.corrupt_field(source.name_of(&ModelConfig::hidden),
                                fmt::format("{} is odd", config.hidden));
  }
  if (config.architecture != "ctrl" || config.rms_eps == kCtrlEps) return ok_status();
  return source.unsupported_field("layer_norm_epsilon", "is not supported, only 1e-6");
}

// The width of its networks is so many times that of rows, whatever intermediate_size says.
Status read_japanese_width(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kTimes = "intermediate_multiple_size";
  const Json* const times = json.find(kTimes);
  double factor = kGptFfnFactor;
  if (times != nullptr && times->is_number()) factor = times->as_double();
  if (!(factor > 0 && factor * config.hidden >= 1 &&
        factor * config.hidden <= kModelLimits.ffn_max)) {
    return source.corrupt_field(kTimes, fmt::format("{} gives no width", factor));
  }
  config.ffn = static_cast<int32_t>(factor * config.hidden);
  return ok_status();
}

Status read_falcon(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_ASSIGN_OR_RETURN(const bool newer, flag_or(json, source, "new_decoder_architecture", false));
  HR_ASSIGN_OR_RETURN(const bool one_key_head, flag_or(json, source, "multi_query", true));
  HR_ASSIGN_OR_RETURN(config.mixers.parallel, flag_or(json, source, "parallel_attn", true));
  HR_ASSIGN_OR_RETURN(const bool biases, flag_or(json, source, "bias", false));
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = biases;
  if (!newer) config.kv_heads = one_key_head ? 1 : config.heads;
  if (newer && !config.mixers.parallel) {
    return source.unsupported_field("parallel_attn",
                                    "false is not supported of new_decoder_architecture");
  }
  constexpr std::string_view kNorms = "num_ln_in_parallel_attn";
  const Json* norms = json.find(kNorms);
  const bool said = norms != nullptr && !norms->is_null();
  if (said && (!norms->is_int() || norms->as_int() < 1 || norms->as_int() > 2)) {
    return source.corrupt_field(kNorms, "is neither 1 nor 2");
  }
  config.mixers.norms_apart = newer && (!said || norms->as_int() == 2);
  return ok_status();
}

// What MPT's file says of attention, in an object of its own.
Status read_mpt(const Json& json, const ConfigSource& source, ModelConfig& config) {
  const Json* scale = json.find("logit_scale");
  if (scale != nullptr && !scale->is_null()) {
    return source.unsupported_field("logit_scale", "is not supported, only null");
  }
  const Json* attention = json.find("attn_config");
  if (attention == nullptr || attention->is_null()) return ok_status();
  if (!attention->is_object()) return source.corrupt_field("attn_config", "is no object");
  for (const auto& [name, only] :
       {std::pair("alibi", true), {"prefix_lm", false}, {"qk_ln", false}}) {
    HR_ASSIGN_OR_RETURN(const bool value, flag_or(*attention, source, name, only));
    if (value != only) {
      return source.unsupported_field(name,
                                      fmt::format("{} is not supported, only {}", value, only));
    }
  }
  const Json* type = attention->find("attn_type");
  if (type != nullptr && *type != Json("multihead_attention")) {
    return source.unsupported_field("attn_type", "only \"multihead_attention\" is supported");
  }
  const auto number = [&](std::string_view name) {
    const Json* member = attention->find(name);
    return member == nullptr || !member->is_number() ? 0.0 : member->as_double();
  };
  if (number("clip_qkv") != 0) {
    return source.unsupported_field("clip_qkv", "is not supported, only null");
  }
  // The class does not read it.
  if (const double most = number("alibi_bias_max"); most != 0 && most != 8) {
    return source.unsupported_field("alibi_bias_max", "is not supported, only 8");
  }
  const double softmax_scale = number("softmax_scale");
  if (softmax_scale > 0) config.attention_scale = static_cast<float>(softmax_scale);
  return ok_status();
}

// GPT-Neo's windows: a name for each layer, or lists of names with how often they come.
Status read_neo_layers(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kLayers = "attention_layers", kTypes = "attention_types";
  std::vector<bool>& sliding = config.sliding_layers;
  const auto add = [&](const Json& name) {
    if (!name.is_string()) return false;
    sliding.push_back(name.as_string() == "local");
    return sliding.back() || name.as_string() == "global";
  };
  const auto add_all = [&](const Json& names) {
    return names.is_array() && std::ranges::all_of(names.as_array(), add);
  };
  const Json* layers = json.find(kLayers);
  const Json* types = json.find(kTypes);
  const bool by_layer = layers != nullptr && !layers->is_null();
  bool good = true;
  if (by_layer) {
    good = add_all(*layers);
  } else if (types != nullptr && types->is_array()) {
    for (const Json& row : types->as_array()) {
      good = good && row.is_array() && row.as_array().size() == 2 && row.as_array()[1].is_int() &&
             row.as_array()[1].as_int() <= config.layers;
      for (int64_t i = 0; good && i < row.as_array()[1].as_int(); ++i) {
        good = add_all(row.as_array()[0]) && std::ssize(sliding) <= config.layers;
      }
    }
  } else {
    for (int32_t i = 0; i < config.layers; ++i) sliding.push_back(i % 2 == 1);
  }
  if (good && std::ssize(sliding) == config.layers) return ok_status();
  return source.corrupt_field(
      by_layer ? kLayers : kTypes,
      fmt::format("does not say \"global\" or \"local\" of each of {} layers", config.layers));
}

}  // namespace

void gpt2_defaults(ModelConfig& config) {
  set_defaults(config, 1024);
  set_biases(config);
  config.fused.qkv = true;
  config.tied_embeddings = true;
}
void gpt_big_code_defaults(ModelConfig& config) { gpt2_defaults(config); }
void gpt_neo_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  config.attention_out_bias = config.ffn_bias = true;
  config.attention_scale = 1;
  config.window = 256;
  config.tied_embeddings = true;
}
void gpt_j_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  config.rope_dim = 64;
  config.qk_rows_interleaved = true;
  config.ffn_bias = true;
}
void opt_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  set_biases(config);
  config.ffn = 3072;
  config.tied_embeddings = true;
}
void bloom_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  set_biases(config);
  config.fused = {.qkv = true, .qkv_by_head = true};
  config.tied_embeddings = true;
  config.mixers.alibi_bias_max = 8;
}
void mpt_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  config.fused.qkv = true;
  config.tied_embeddings = true;
  config.mixers.alibi_bias_max = 8;
}
void persimmon_defaults(ModelConfig& config) {
  set_defaults(config, 16384);
  set_biases(config);
  config.rope_theta = 25000;
  config.fused = {.qkv = true, .qkv_by_head = true};
  config.mixers.rotated = 0.5;
  config.mixers.head_norms = true;
}
void ctrl_defaults(ModelConfig& config) {
  set_defaults(config, 256);
  set_biases(config);
  config.rms_eps = 1e-6f;
  config.ffn = 8192;
  config.tied_embeddings = true;
  config.head.bias = true;
}
void xglm_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  set_biases(config);
  config.ffn = 4096;
  config.tied_embeddings = true;
}
// Its class has norms with an eps of their own, whatever layer_norm_eps says.
void biogpt_defaults(ModelConfig& config) {
  set_defaults(config, 1024);
  set_biases(config);
  config.tied_embeddings = true;
}
void gpt_neox_japanese_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  config.fused = {.qkv = true, .qkv_by_head = true};
  config.tied_embeddings = true;
}
void falcon_defaults(ModelConfig& config) {
  set_defaults(config, 2048);
  config.fused = {.qkv = true, .qkv_by_head = true};
  config.tied_embeddings = true;
}

Status read_gpt_flags(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(check_one_values(json, source));
  const std::string_view architecture = source.family->architecture;
  if (architecture == "starcoder") return read_big_code(json, source, config);
  if (architecture == "opt") return check_opt(json, source, config);
  if (architecture == "falcon") return read_falcon(json, source, config);
  if (architecture == "persimmon") {
    HR_ASSIGN_OR_RETURN(config.mixers.head_norms, flag_or(json, source, "qk_layernorm", true));
  }
  if (architecture == "gptneox-japanese") return read_japanese_width(json, source, config);
  if (architecture == "ctrl" || architecture == "xglm")
    HR_RETURN_IF_ERROR(check_waves(source, config));
  if (architecture == "biogpt" || architecture == "xglm") {
    HR_ASSIGN_OR_RETURN(const bool scaled, flag_or(json, source, "scale_embedding", true));
    if (scaled) config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  }
  if (architecture == "mpt") return read_mpt(json, source, config);
  if (architecture == "gptneo") return read_neo_layers(json, source, config);
  if (architecture == "codegen" && config.heads % 4 != 0) {
    return source.corrupt_field("n_head", fmt::format("4 does not divide {}", config.heads));
  }
  return ok_status();
}

}  // namespace headrace
