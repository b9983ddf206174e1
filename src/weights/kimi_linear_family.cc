#include "weights/kimi_linear_family.h"

#include <string>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

constexpr std::string_view kLinear = "linear_attn_config";

// A number of the object, where it has one. `within`: where the object stands.
Status take_number(const Json& object, std::string_view name, int32_t min, int32_t max,
                   const ConfigSource& source, int32_t& number,
                   std::string_view within = "linear_attn_config.") {
  const Json* const found = said_member(object, name);
  if (found == nullptr) return ok_status();
  if (!found->is_int() || found->as_int() < min || found->as_int() > max) {
    return source.corrupt_field(fmt::format("{}{}", within, name),
                                fmt::format("is no number from {} to {}", min, max));
  }
  number = static_cast<int32_t>(found->as_int());
  return ok_status();
}

// Layers that are counted from 1 on, in the first files.
Status read_listed_layers(const Json& listed, const ConfigSource& source, ModelConfig& config) {
  const std::string name = fmt::format("{}.full_attn_layers", kLinear);
  if (!listed.is_array()) return source.corrupt_field(name, "is no list of layers");
  config.mixers.by_layer.assign(static_cast<size_t>(config.layers), LayerMixer::kKimiDelta);
  for (const Json& layer : listed.as_array()) {
    if (!layer.is_int() || layer.as_int() < 1 || layer.as_int() > config.layers) {
      return source.corrupt_field(name,
                                  fmt::format("has what is none of {} layers", config.layers));
    }
    config.mixers.by_layer[static_cast<size_t>(layer.as_int() - 1)] = LayerMixer::kAttention;
  }
  return ok_status();
}

Status read_named_layers(const Json& types, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kTypes = "layer_types";
  if (!types.is_array() || std::ssize(types.as_array()) != config.layers) {
    return source.corrupt_field(kTypes, fmt::format("is no list of {} names", config.layers));
  }
  for (const Json& type : types.as_array()) {
    const bool attends = type == Json("full_attention");
    if (!attends && type != Json("linear_attention")) {
      return source.unsupported_field(
          kTypes, "has a layer that is not supported (known: full_attention, linear_attention)");
    }
    config.mixers.by_layer.push_back(attends ? LayerMixer::kAttention : LayerMixer::kKimiDelta);
  }
  return ok_status();
}

// What a file may say and nothing here does.
Status refuse_other_kimis(const Json& json, const ConfigSource& source) {
  const Json* const plain = said_member(json, "mla_use_nope");
  if (plain != nullptr && *plain == Json(false)) {
    return source.unsupported_field("mla_use_nope",
                                    "layers that rotate are not supported, only true or none");
  }
  const Json* const router = said_member(json, "moe_router_activation_func");
  if (router != nullptr && *router != Json("sigmoid")) {
    return source.unsupported_field("moe_router_activation_func", "only \"sigmoid\" is supported");
  }
  return ok_status();
}

// The last layer of each group attends.
Status read_ling3(const Json& json, const ConfigSource& source, ModelConfig& config) {
  for (const std::string_view name :
       {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"}) {
    if (said_member(json, name) != nullptr) {
      return source.unsupported_field(name, "is not supported, only null or none");
    }
  }
  const Json* const few = said_member(json, "no_kda_lora");
  if (few != nullptr && *few != Json(true)) {
    return source.unsupported_field("no_kda_lora", "is not supported, only true or none");
  }
  constexpr std::string_view kGates = "gated_attention_proj_granularity_type";
  const Json* const gates = said_member(json, kGates);
  if (gates != nullptr && *gates != Json("head_wise")) {
    return source.unsupported_field(kGates, "only \"head_wise\" is supported");
  }
  MixerConfig& mixers = config.mixers;
  HR_ASSIGN_OR_RETURN(const bool bounded, flag_or(json, source, "kda_safe_gate", true));
  if (!bounded) mixers.delta.decay_floor = 0;
  // Heads are those of layers that attend, as large as the first of these numbers says.
  if (mixers.key_dim == 0) mixers.key_dim = config.head_dim;
  mixers.key_heads = mixers.value_heads = config.heads;
  mixers.value_dim = mixers.key_dim;
  if (const Json* const types = said_member(json, "layer_types")) {
    return read_named_layers(*types, source, config);
  }
  int32_t period = 6;
  HR_RETURN_IF_ERROR(
      take_number(json, "layer_group_size", 1, kModelLimits.layers_max, source, period, ""));
  for (int32_t i = 0; i < config.layers; ++i) {
    const bool attends = (i + 1) % period == 0;
    mixers.by_layer.push_back(attends ? LayerMixer::kAttention : LayerMixer::kKimiDelta);
  }
  return ok_status();
}

}  // namespace

void ling3_defaults(ModelConfig& config) {
  config.rope_theta = 6e6;
  config.context_length = 262144;
  config.rms_eps = 1e-6f;
  config.head_dim = 128;
  config.qk_rows_interleaved = true;
  MixerConfig& mixers = config.mixers;
  mixers.latent = {.rank = 512, .plain_dim = 128, .rope_dim = 64, .value_dim = 128};
  mixers.conv_taps = 4;
  mixers.rate_is_log = true;
  mixers.delta.decay_floor = -5;
  config.experts = {.count = 512,
                    .used = 8,
                    .width = 768,
                    .shared_count = 1,
                    .scale = 2.5f,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .groups = 8,
                    .groups_used = 4,
                    .dense_first = 2};
}

void kimi_linear_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 1048576;
  config.rms_eps = 1e-5f;
  MixerConfig& mixers = config.mixers;
  mixers.latent = {.rank = 512, .plain_dim = 128, .rope_dim = 64, .value_dim = 128};
  mixers.conv_taps = 4;
  mixers.key_heads = 32;
  mixers.key_dim = 128;
  mixers.rate_is_log = true;
  config.experts = {.count = 256,
                    .used = 8,
                    .width = 1024,
                    .shared_count = 1,
                    .scale = 2.446f,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}

Status read_kimi_linear(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(refuse_other_kimis(json, source));
  MixerConfig& mixers = config.mixers;
  if (said_member(json, "moe_renormalize") != nullptr) {
    HR_ASSIGN_OR_RETURN(config.experts.normalised, flag_or(json, source, "moe_renormalize", true));
  }
  if (config.architecture == "bailingmoe3") return read_ling3(json, source, config);
  const Json* const listed = said_member(json, kLinear);
  if (listed != nullptr) {
    HR_RETURN_IF_ERROR(
        take_number(*listed, "head_dim", 1, kModelLimits.head_dim_max, source, mixers.key_dim));
    HR_RETURN_IF_ERROR(
        take_number(*listed, "num_heads", 1, kModelLimits.heads_max, source, mixers.key_heads));
    HR_RETURN_IF_ERROR(take_number(*listed, "short_conv_kernel_size", 2, kModelLimits.conv_taps_max,
                                   source, mixers.conv_taps));
  }
  mixers.value_heads = mixers.key_heads;
  mixers.value_dim = mixers.key_dim;
  if (const Json* const types = said_member(json, "layer_types")) {
    return read_named_layers(*types, source, config);
  }
  const Json* const full = listed == nullptr ? nullptr : said_member(*listed, "full_attn_layers");
  if (full != nullptr) return read_listed_layers(*full, source, config);
  for (int32_t i = 0; i < config.layers; ++i) {
    const bool attends = i > 0 && i % 4 == 0;
    mixers.by_layer.push_back(attends ? LayerMixer::kAttention : LayerMixer::kKimiDelta);
  }
  return ok_status();
}

Status read_gguf_kimi_linear(const GgufFile& file, const ConfigSource& source,
                             ModelConfig& config) {
  const bool ling3 = config.architecture == "bailingmoe3";
  if (!ling3 && config.architecture != "kimi-linear") return ok_status();
  MixerConfig& mixers = config.mixers;
  if (mixers.key_dim == 0 || mixers.conv_taps == 0) {
    return source.corrupt_field(source.name_of(&MixerConfig::key_dim),
                                "or ssm.conv_kernel is missing");
  }
  mixers.key_heads = mixers.value_heads = config.heads;
  mixers.value_dim = mixers.key_dim;
  if (!ling3) config.experts.normalised = true;  // as llama.cpp takes it
  if (!ling3) return ok_status();
  for (const std::string_view name :
       {"swiglu_clamp_exp", "swiglu_clamp_shexp", "rope.dimension_sections"}) {
    const std::string key = fmt::format("{}.{}", config.architecture, name);
    HR_ASSIGN_OR_RETURN(const auto limits, file.optional_array(key));
    for (size_t i = 0; limits && i < limits->size(); ++i) {
      if (limits->float_at(i).value_or(1) == 0) continue;
      return file.unsupported_field(key, "is not supported, only 0");
    }
  }
  return ok_status();
}

}  // namespace headrace
