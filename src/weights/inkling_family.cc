#include "weights/inkling_family.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

constexpr int32_t kProfilesMax = 4096, kPeriod = 6;
constexpr std::string_view kOwnTypes = "layer_types as they are";  // of inkling_spelling()

// Which layers slide, in the names that other classes have: those of a list, or all but each n-th.
Json kinds_of_layers(const Json& json, const ModelConfig& assumed) {
  Json::Array kinds;
  const Json* const types = said_member(json, "layer_types");
  if (types != nullptr && types->is_array()) {
    for (const Json& type : types->as_array()) {
      kinds.push_back(type == Json("hybrid_sliding") ? Json("sliding_attention")
                      : type == Json("hybrid")       ? Json("full_attention")
                                                     : type);
    }
    return Json(std::move(kinds));
  }
  const Json* const count = said_member(json, "num_hidden_layers");
  const int64_t layers = count != nullptr && count->is_int() ? count->as_int() : assumed.layers;
  const Json* const local = said_member(json, "local_layer_ids");
  for (int64_t i = 0; i < std::min<int64_t>(layers, kModelLimits.layers_max); ++i) {
    bool slides = (i + 1) % kPeriod != 0;
    if (local != nullptr && local->is_array()) {
      slides = std::ranges::find(local->as_array(), Json(i)) != local->as_array().end();
    }
    kinds.push_back(Json(slides ? "sliding_attention" : "full_attention"));
  }
  return Json(std::move(kinds));
}

// Names of other classes are none of this one's.
Status check_kinds(const Json& json, const ConfigSource& source) {
  const Json* const types = said_member(json, kOwnTypes);
  if (types == nullptr || !types->is_array()) return ok_status();
  for (const Json& type : types->as_array()) {
    if (type == Json("hybrid") || type == Json("hybrid_sliding")) continue;
    return source.unsupported_field(
        "layer_types",
        fmt::format("{} is not supported (known: hybrid, hybrid_sliding)", write_json(type)));
  }
  return ok_status();
}

Status read_temperature(const Json& json, const ConfigSource& source, ModelConfig& config) {
  TemperatureConfig& rule = config.mixers.temperature;
  HR_ASSIGN_OR_RETURN(rule.step, count_or(json, source, "log_scaling_n_floor", 0, 1,
                                          kModelLimits.context_length_max));
  const Json* const alpha = said_member(json, "log_scaling_alpha");
  const double scale = alpha == nullptr ? 0.1 : alpha->is_number() ? alpha->as_double() : -1;
  if (!(scale >= 0 && scale <= 1e3)) {
    return source.corrupt_field("log_scaling_alpha", "is no number from 0 to 1000");
  }
  rule.offset = 1;
  rule.smooth = true;
  rule.scale = rule.step == 0 ? 0.0f : static_cast<float>(scale);
  return ok_status();
}

Status check_sliding_heads(const ConfigSource& source, const ModelConfig& config) {
  const HeadSizes& sizes = config.mixers.head_sizes;
  if (sizes.sliding_heads % sizes.sliding_kv_heads != 0) {
    return source.corrupt_field("swa_num_key_value_heads",
                                fmt::format("{} key/value heads do not divide {} query heads",
                                            sizes.sliding_kv_heads, sizes.sliding_heads));
  }
  if (sizes.sliding_head_dim % 2 == 0) return ok_status();
  return source.corrupt_field("swa_head_dim",
                              fmt::format("head size {} is odd", sizes.sliding_head_dim));
}

}  // namespace

void inkling_defaults(ModelConfig& config) {
  config.vocab = 201024;
  config.hidden = 6144;
  config.layers = 66;
  config.heads = 64;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.ffn = 24576;
  config.window = 512;
  config.context_length = 131072;
  config.rms_eps = 1e-6f;
  config.rope_theta = 1e4;  // nothing rotates
  config.logit_divisor = 24;
  config.head.padded = true;
  config.mixers.rotates = false;
  config.mixers.conv_taps = 4;
  config.mixers.head_sizes = {.sliding_heads = 64, .sliding_head_dim = 128, .sliding_kv_heads = 16};
  config.experts = {.count = 256,
                    .used = 6,
                    .width = 3072,
                    .shared_count = 2,
                    .scale = 8,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid};
}

Json inkling_spelling(const Json& json) {
  if (!json.is_object()) return json;
  ModelConfig assumed;
  inkling_defaults(assumed);
  Json read = Json::object();
  // Of other classes: nothing rotates, weights are always normalised.
  constexpr std::array<std::string_view, 4> kNotRead{"rope_theta", "rope_parameters",
                                                     "rope_scaling", "norm_topk_prob"};
  for (const auto& [key, value] : json.as_object()) {
    if (std::ranges::find(kNotRead, key) == kNotRead.end()) read.set(key, value);
  }
  if (const Json* const types = said_member(json, "layer_types")) {
    read.set(std::string(kOwnTypes), *types);
  }
  read.set("layer_types", kinds_of_layers(json, assumed));
  if (const Json* const window = said_member(json, "sliding_window_size")) {
    read.set("sliding_window", *window);
  }
  // Where a file has both widths, the plain one is that of experts.
  if (const Json* const dense = said_member(json, "dense_intermediate_size")) {
    const Json* const of_experts = said_member(json, "intermediate_size");
    read.set("moe_intermediate_size", of_experts == nullptr ? Json(assumed.ffn) : *of_experts);
    read.set("intermediate_size", *dense);
  }
  return read;
}

Status read_inkling(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "inkling") return ok_status();
  HR_RETURN_IF_ERROR(check_kinds(json, source));
  MixerConfig& mixers = config.mixers;
  mixers.by_layer.assign(static_cast<size_t>(config.layers), LayerMixer::kConvolved);
  HR_ASSIGN_OR_RETURN(mixers.head_sizes.profiles.count,
                      count_or(json, source, "d_rel", 16, 1, kProfilesMax));
  HR_ASSIGN_OR_RETURN(
      mixers.head_sizes.profiles.extent,
      count_or(json, source, "rel_extent", 1024, 1, kModelLimits.context_length_max));
  HR_RETURN_IF_ERROR(read_temperature(json, source, config));
  if (config.window < 1)
    return source.corrupt_field("sliding_window_size", "0 tokens are no window");
  HR_ASSIGN_OR_RETURN(const bool sinks, flag_or(json, source, "shared_expert_sink", true));
  if (!sinks) {
    return source.unsupported_field("shared_expert_sink", "is not supported, only true or none");
  }
  return check_sliding_heads(source, config);
}

}  // namespace headrace
