#include "weights/window_families.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

// A key of which one value is known, beside none; `known` spells it.
Status refuse_others(const Json& json, const ConfigSource& source, std::string_view name,
                     const Json& value, std::string_view known) {
  const Json* const found = said_member(json, name);
  if (found == nullptr || *found == value) return ok_status();
  return source.unsupported_field(name, fmt::format("is not supported, only {} or none", known));
}
Status refuse_others(const Json& json, const ConfigSource& source, std::string_view name,
                     int32_t value) {
  return refuse_others(json, source, name, Json(value), std::to_string(value));
}

// A share of heads that rotates.
Result<double> share_of_heads(const Json& json, const ConfigSource& source, double fallback) {
  constexpr std::string_view kShare = "partial_rotary_factor";
  const Json* const found = said_member(json, kShare);
  if (found == nullptr) return fallback;
  if (found->is_number() && found->as_double() > 0 && found->as_double() <= 1) {
    return found->as_double();
  }
  return source.corrupt_field(kShare, "is no number between 0 and 1");
}

// Of layers that slide; `fallback`: where the file does not say it.
Status read_sliding_rotation(const Json& json, const ConfigSource& source, double fallback,
                             ModelConfig& config) {
  double share = fallback;
  const Json* const rotations = said_member(json, "rope_parameters");
  const Json* const sliding = rotations == nullptr || !rotations->is_object()
                                  ? nullptr
                                  : said_member(*rotations, "sliding_attention");
  if (sliding != nullptr && sliding->is_object()) {
    HR_ASSIGN_OR_RETURN(share, share_of_heads(*sliding, source, fallback));
  }
  config.mixers.head_sizes.sliding_rope_dim = static_cast<int32_t>(config.head_dim * share);
  return ok_status();
}

Status check_head_sizes(const ConfigSource& source, const ModelConfig& config) {
  const HeadSizes& sizes = config.mixers.head_sizes;
  if (sizes.sliding_rope_dim % 2 != 0 || sizes.sliding_rope_dim > config.head_dim ||
      (sizes.sliding_rope_dim < 2 && !source.gguf)) {
    return source.corrupt_field(
        source.gguf ? "rope.dimension_count_swa" : "partial_rotary_factor",
        fmt::format("{} rotated dimensions of layers that slide: must be even and at most the head "
                    "size {}",
                    sizes.sliding_rope_dim, config.head_dim));
  }
  if (sizes.sliding_kv_heads > 0 && config.heads % sizes.sliding_kv_heads != 0) {
    return source.corrupt_field(
        source.name_of(&ModelConfig::kv_heads),
        fmt::format("{} key/value heads of layers that slide do not divide {} query heads",
                    sizes.sliding_kv_heads, config.heads));
  }
  const bool step = config.architecture == "step35";
  for (const int32_t heads : sizes.queries) {
    if (config.kv_heads >= 1 && heads >= 1 && heads <= kModelLimits.heads_max &&
        heads % config.kv_heads == 0) {
      continue;
    }
    return source.corrupt_field(source.gguf ? source.name_of(&ModelConfig::heads)
                                : step      ? "num_sliding_attention_heads"
                                            : "num_attention_heads_per_layer",
                                fmt::format("{} is no number of query heads of {} key/value heads",
                                            heads, config.kv_heads));
  }
  return ok_status();
}

// The hub's names for what the library has others for.
Status read_hub_layers(const Json& json, const ConfigSource& source, ModelConfig& config) {
  const auto flags = [&](std::string_view name) -> Result<std::vector<bool>> {
    std::vector<bool> layers;
    const Json* const listed = said_member(json, name);
    if (listed == nullptr) return layers;
    if (!listed->is_array() || std::ssize(listed->as_array()) != config.layers) {
      return source.corrupt_field(name, fmt::format("is no list of {} flags", config.layers));
    }
    for (const Json& flag : listed->as_array()) {
      const bool is_set = flag == Json(1) || flag == Json(true);
      if (!is_set && flag != Json(0) && flag != Json(false)) {
        return source.corrupt_field(name, "has what is none of 0 and 1");
      }
      layers.push_back(is_set);
    }
    return layers;
  };
  HR_ASSIGN_OR_RETURN(const std::vector<bool> mixtures, flags("moe_layer_freq"));
  const auto dense = std::ranges::find(mixtures, true) - mixtures.begin();
  if (std::find(mixtures.begin() + dense, mixtures.end(), false) != mixtures.end()) {
    return source.unsupported_field("moe_layer_freq",
                                    "dense layers behind mixtures are not supported");
  }
  if (!mixtures.empty()) config.experts.dense_first = static_cast<int32_t>(dense);
  if (said_member(json, "layer_types") != nullptr) return ok_status();
  HR_ASSIGN_OR_RETURN(config.sliding_layers, flags("hybrid_layer_pattern"));
  constexpr int32_t kPeriod = 6;
  for (int32_t i = 0; std::ssize(config.sliding_layers) < config.layers; ++i) {
    config.sliding_layers.push_back(i > 0 && (i + 1) % kPeriod != 0);
  }
  return ok_status();
}

Status read_mimo2(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HeadSizes& sizes = config.mixers.head_sizes;
  if (sizes.value_scale == 0) sizes.value_scale = 1;
  HR_RETURN_IF_ERROR(
      refuse_others(json, source, "add_full_attention_sink_bias", Json(false), "false"));
  HR_RETURN_IF_ERROR(
      refuse_others(json, source, "add_swa_attention_sink_bias", Json(true), "true"));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "scoring_func", Json("sigmoid"), "\"sigmoid\""));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "n_shared_experts", 0));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "swa_head_dim", config.head_dim));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "swa_v_head_dim", sizes.value_dim));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "swa_num_attention_heads", config.heads));
  HR_ASSIGN_OR_RETURN(sizes.sliding_kv_heads,
                      count_or(json, source, "swa_num_key_value_heads", 2 * config.kv_heads, 1,
                               kModelLimits.heads_max));
  // So many tokens before a row, and its own.
  HR_ASSIGN_OR_RETURN(config.window,
                      count_or(json, source, "sliding_window_size", config.window - 1, 1,
                               kModelLimits.context_length_max - 1));
  config.window += 1;
  HR_ASSIGN_OR_RETURN(const double share, share_of_heads(json, source, config.mixers.rotated));
  HR_RETURN_IF_ERROR(read_sliding_rotation(json, source, share, config));
  return read_hub_layers(json, source, config);
}

Status read_laguna(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(
      refuse_others(json, source, "moe_apply_router_weight_on_input", Json(false), "false"));
  const Json* const cap = said_member(json, "moe_router_logit_softcapping");
  if (cap != nullptr && !(cap->is_number() && cap->as_double() == 0)) {
    return source.unsupported_field("moe_router_logit_softcapping",
                                    "is not supported, only 0 or none");
  }
  if (said_member(json, "gating_types") != nullptr) {
    return source.unsupported_field("gating_types", "is not supported, only gating");
  }
  const Json* const gating = said_member(json, "gating");
  HeadSizes& sizes = config.mixers.head_sizes;
  sizes.gates_of_heads = gating == nullptr || *gating == Json(true) || *gating == Json("per-head");
  if (!sizes.gates_of_heads && *gating != Json("per-element")) {
    return source.unsupported_field(
        "gating", "is not supported (known: true, \"per-head\", \"per-element\")");
  }
  constexpr std::string_view kHeads = "num_attention_heads_per_layer";
  if (const Json* const heads = said_member(json, kHeads)) {
    if (!heads->is_array() || std::ssize(heads->as_array()) != config.layers) {
      return source.corrupt_field(kHeads, fmt::format("is no list of {} numbers", config.layers));
    }
    for (const Json& of_layer : heads->as_array()) {
      const bool fits = of_layer.is_int() && of_layer.as_int() <= kModelLimits.heads_max;
      sizes.queries.push_back(fits ? static_cast<int32_t>(of_layer.as_int()) : 0);
    }
  }
  // What is assumed of a file without rotations; of one that has some, all of a head rotates.
  if (said_member(json, "rope_parameters") == nullptr) config.mixers.rotated = 0.5;
  if (said_member(json, "layer_types") == nullptr) config.window = 0;
  return read_sliding_rotation(json, source, 1.0, config);
}

// What files of Step say of parts that every one of its layers has.
Status refuse_other_steps(const Json& json, const ConfigSource& source) {
  for (const std::string_view name : {"zero_centered", "norm_expert_weight", "use_moe_router_bias",
                                      "use_head_wise_attn_gate", "use_sliding_window"}) {
    HR_RETURN_IF_ERROR(refuse_others(json, source, name, Json(true), "true"));
  }
  HR_RETURN_IF_ERROR(refuse_others(json, source, "mlp_bias", Json(false), "false"));
  HR_RETURN_IF_ERROR(
      refuse_others(json, source, "moe_router_activation", Json("sigmoid"), "\"sigmoid\""));
  HR_RETURN_IF_ERROR(refuse_others(json, source, "yarn_only_types",
                                   Json(std::vector<Json>{Json("full_attention")}),
                                   "[\"full_attention\"]"));
  if (said_member(json, "partial_rotary_factor") != nullptr) {
    return source.unsupported_field("partial_rotary_factor",
                                    "is not supported, only partial_rotary_factors");
  }
  const Json* const gating = said_member(json, "gating");
  if (gating != nullptr && *gating != Json(true) && *gating != Json("per-head")) {
    return source.unsupported_field("gating", "is not supported (known: true, \"per-head\")");
  }
  const Json* const rotating = said_member(json, "use_rope_layers");
  if (rotating == nullptr ||
      (rotating->is_array() &&
       std::ranges::count(rotating->as_array(), Json(true)) == std::ssize(rotating->as_array()))) {
    return ok_status();
  }
  return source.unsupported_field("use_rope_layers", "is not supported, only true of each layer");
}

// All see all where a file does not say it.
Status read_step_layers(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kTypes = "layer_types";
  const auto layers = static_cast<size_t>(config.layers);
  const Json* const types = said_member(json, kTypes);
  config.sliding_layers.assign(layers, false);
  if (types != nullptr) {
    HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*types, source, kTypes, config));
    for (size_t i = 0; i < layers; ++i) {
      config.sliding_layers[i] = entries[i] == Json("sliding_attention");
      if (config.sliding_layers[i] || entries[i] == Json("full_attention")) continue;
      return source.unsupported_field(
          kTypes, "has a layer that is not supported (known: full_attention, sliding_attention)");
    }
  }
  const bool slides = std::ranges::count(config.sliding_layers, true) > 0;
  if (!slides) config.window = 0;
  if (slides && config.window == 0) return source.corrupt_field("sliding_window", "missing");
  return ok_status();
}

// Layers that slide have query heads of their own, and nothing else.
Status read_step_heads(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kHeads = "num_sliding_attention_heads", kByLayer = "per_layer_config";
  int32_t sliding = config.heads;
  if (const Json* const other = said_member(json, "attention_other_setting")) {
    if (!other->is_object()) {
      return source.corrupt_field("attention_other_setting", "is no object");
    }
    HR_RETURN_IF_ERROR(refuse_others(*other, source, "attention_type", Json("sliding_attention"),
                                     "\"sliding_attention\""));
    for (const std::string_view name : {"num_attention_groups", "num_key_value_heads"}) {
      HR_RETURN_IF_ERROR(refuse_others(*other, source, name, config.kv_heads));
    }
    for (const std::string_view name : {"head_dim", "true_head_dim"}) {
      HR_RETURN_IF_ERROR(refuse_others(*other, source, name, config.head_dim));
    }
    HR_ASSIGN_OR_RETURN(sliding, count_or(*other, source, "num_attention_heads", sliding, 1,
                                          kModelLimits.heads_max));
  }
  HR_ASSIGN_OR_RETURN(sliding, count_or(json, source, kHeads, sliding, 1, kModelLimits.heads_max));
  std::vector<int32_t>& queries = config.mixers.head_sizes.queries;
  for (const bool slides : config.sliding_layers)
    queries.push_back(slides ? sliding : config.heads);
  const Json* const by_layer = said_member(json, kByLayer);
  if (by_layer == nullptr) return ok_status();
  if (!by_layer->is_object()) return source.corrupt_field(kByLayer, "is no object");
  for (const auto& [layer, changes] : by_layer->as_object()) {
    for (int32_t i = 0; i < config.layers; ++i) {
      Json known = Json(Json::Object{});
      known.set("num_attention_heads", Json(queries[static_cast<size_t>(i)]));
      if (layer != std::to_string(i) || changes == known) continue;
      return source.unsupported_field(
          kByLayer, fmt::format("layer {} differs in more than {}", layer, kHeads));
    }
  }
  return ok_status();
}

// Of a list of a number a layer what layers that see all have, and those that slide: each kind has
// one. Nothing where a file does not say it.
struct NumbersOfKinds {
  std::optional<double> full, sliding;
};
Result<NumbersOfKinds> read_numbers_of_kinds(const Json& json, const ConfigSource& source,
                                             std::string_view name, const ModelConfig& config) {
  NumbersOfKinds numbers;
  const Json* const listed = said_member(json, name);
  if (listed == nullptr || (listed->is_array() && listed->as_array().empty())) return numbers;
  HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*listed, source, name, config));
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_number()) return source.corrupt_field(name, "is no list of numbers");
    const double number = entries[i].as_double();
    std::optional<double>& of_kind = config.sliding_layers[i] ? numbers.sliding : numbers.full;
    if (of_kind.value_or(number) != number) {
      return source.unsupported_field(
          name, fmt::format("{} and {} of layers of one type are not supported", *of_kind, number));
    }
    of_kind = number;
  }
  return numbers;
}

// By kind of layer, or in the hub's spelling a number a layer.
Status read_step_rotations(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kRotations = "rope_parameters", kThetas = "rope_theta",
                             kShares = "partial_rotary_factors";
  if (const Json* const rotations = said_member(json, kRotations)) {
    for (const bool slides : config.sliding_layers) {
      const std::string_view kind = slides ? "sliding_attention" : "full_attention";
      const Json* const own = rotations->is_object() ? said_member(*rotations, kind) : nullptr;
      if (own != nullptr && own->is_object()) continue;
      return source.corrupt_field(kRotations, fmt::format("has no object {}", kind));
    }
    return read_sliding_rotation(json, source, 1.0, config);
  }
  const Json* const thetas = said_member(json, kThetas);
  NumbersOfKinds bases;
  if (thetas != nullptr && thetas->is_array()) {
    HR_ASSIGN_OR_RETURN(bases, read_numbers_of_kinds(json, source, kThetas, config));
  }
  HR_ASSIGN_OR_RETURN(const NumbersOfKinds shares,
                      read_numbers_of_kinds(json, source, kShares, config));
  config.rope_theta = bases.full.value_or(config.rope_theta);
  config.rope_theta_local = bases.sliding.value_or(config.rope_theta);
  config.mixers.rotated = shares.full.value_or(1);
  const double sliding = shares.sliding.value_or(1);
  for (const double theta : {config.rope_theta, config.rope_theta_local}) {
    if (theta >= 1 && theta <= 1e12) continue;
    return source.corrupt_field(kThetas, fmt::format("{} is not between 1 and 1e12", theta));
  }
  if (!(sliding > 0 && sliding <= 1)) {
    return source.corrupt_field(kShares, fmt::format("{} is not between 0 and 1", sliding));
  }
  config.mixers.head_sizes.sliding_rope_dim = static_cast<int32_t>(config.head_dim * sliding);
  return ok_status();
}

// Which layers are mixtures, in the hub's spelling: numbers in a list, or in a text between commas.
Status read_step_mixtures(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kLayers = "moe_layers_enum";
  const Json* const listed = said_member(json, kLayers);
  if (listed == nullptr) return ok_status();
  ExpertConfig& experts = config.experts;
  experts.dense_first = 0;
  experts.dense_layers.assign(static_cast<size_t>(config.layers), true);
  const auto add = [&](int64_t layer) {
    if (layer >= 0 && layer < config.layers) {
      experts.dense_layers[static_cast<size_t>(layer)] = false;
    }
  };
  const bool is_text = listed->is_string();
  if (!is_text && !(listed->is_array() && std::ranges::all_of(listed->as_array(), &Json::is_int))) {
    return source.corrupt_field(kLayers, "is no list of numbers of layers");
  }
  if (!is_text) {
    for (const Json& layer : listed->as_array()) add(layer.as_int());
    return ok_status();
  }
  std::string_view rest = listed->as_string();
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const size_t first = entry.find_first_not_of(' ');
    if (first == std::string_view::npos) continue;
    const std::string_view digits = entry.substr(first, entry.find_last_not_of(' ') + 1 - first);
    int32_t layer = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return source.corrupt_field(kLayers, "is no list of numbers of layers");
    }
    add(layer);
  }
  return ok_status();
}

constexpr double kLimitMax = 1e6;

// Empty where no layer has one.
Result<std::vector<float>> limits_of_layers(const Json& json, const ConfigSource& source,
                                            std::string_view name, const ModelConfig& config) {
  std::vector<float> limits;
  const Json* const listed = said_member(json, name);
  if (listed == nullptr || (listed->is_array() && listed->as_array().empty())) return limits;
  HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*listed, source, name, config));
  for (const Json& limit : entries) {
    const double value = limit.is_number() ? limit.as_double() : limit.is_null() ? 0 : -1;
    if (!(value >= 0 && value <= kLimitMax)) {
      return source.corrupt_field(name, "has what is no limit from 0 to 1e6");
    }
    limits.push_back(static_cast<float>(value));
  }
  if (std::ranges::count(limits, 0.0f) == std::ssize(limits)) limits.clear();
  return limits;
}

Status read_step(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(refuse_other_steps(json, source));
  HR_RETURN_IF_ERROR(read_step_layers(json, source, config));
  HR_RETURN_IF_ERROR(read_step_heads(json, source, config));
  HR_RETURN_IF_ERROR(read_step_rotations(json, source, config));
  HR_RETURN_IF_ERROR(read_step_mixtures(json, source, config));
  config.mixers.head_sizes.gates_of_heads = true;
  ExpertConfig& experts = config.experts;
  HR_ASSIGN_OR_RETURN(experts.limits, limits_of_layers(json, source, "swiglu_limits", config));
  HR_ASSIGN_OR_RETURN(experts.whole_limits,
                      limits_of_layers(json, source, "swiglu_limits_shared", config));
  return ok_status();
}

// Of layers that do not slide: the share of a head's pairs that rotate.
Status read_proportional_rotation(const Json& json, const ConfigSource& source,
                                  ModelConfig& config) {
  double& share = config.mixers.gemma.full_rotated;
  share = 0.5;  // of a file without rotations
  const Json* const rotations = said_member(json, "rope_parameters");
  if (rotations == nullptr) return ok_status();
  const Json* const full =
      rotations->is_object() ? said_member(*rotations, "full_attention") : nullptr;
  if (full == nullptr || !full->is_object()) {
    return source.corrupt_field("rope_parameters", "has no object full_attention");
  }
  HR_ASSIGN_OR_RETURN(share, share_of_heads(*full, source, 1));
  const Json* const type = said_member(*full, "rope_type");
  if (share == 1 || (type != nullptr && *type == Json("proportional"))) return ok_status();
  return source.unsupported_field("partial_rotary_factor",
                                  "is not supported without rope_type \"proportional\"");
}

// Layers that convolve, that slide, and that see all, whose rotation is of its first pairs alone.
Status read_lfm3(const Json& json, const ConfigSource& source, ModelConfig& config) {
  MixerConfig& mixers = config.mixers;
  HR_ASSIGN_OR_RETURN(mixers.post_norms, flag_or(json, source, "use_sandwich_norm", true));
  HR_ASSIGN_OR_RETURN(mixers.gated_attention, flag_or(json, source, "use_attention_gate", true));
  constexpr std::string_view kTypes = "layer_types";
  const Json* const types = said_member(json, kTypes);
  if (types != nullptr && (!types->is_array() || std::ssize(types->as_array()) != config.layers)) {
    return source.corrupt_field(kTypes, fmt::format("is no list of {} names", config.layers));
  }
  for (int32_t i = 0; i < config.layers; ++i) {
    const char* const usual = i % 4 == 2            ? "full_attention"
                              : i % 4 == 0 && i > 0 ? "sliding_attention"
                                                    : "conv";
    const Json type = types == nullptr ? Json(usual) : types->as_array()[static_cast<size_t>(i)];
    const bool convolves = type == Json("conv"), slides = type == Json("sliding_attention");
    if (!convolves && !slides && type != Json("full_attention")) {
      return source.unsupported_field(
          kTypes,
          "has a layer that is not supported (known: conv, full_attention, "
          "sliding_attention)");
    }
    mixers.by_layer.push_back(convolves ? LayerMixer::kShortConv : LayerMixer::kAttention);
    config.sliding_layers.push_back(slides);
  }
  return read_proportional_rotation(json, source, config);
}

// What is assumed of a file without lists of layers.
Status read_flint(const Json& json, ModelConfig& config) {
  if (said_member(json, "mlp_only_layers") != nullptr) config.experts.dense_first = 0;
  if (said_member(json, "layer_types") != nullptr) return ok_status();
  constexpr int32_t kFullFirst = 2, kPeriod = 4;
  for (int32_t i = 0; i < config.layers; ++i) {
    config.sliding_layers.push_back(i >= kFullFirst && i % kPeriod != 1 && i + 1 < config.layers);
  }
  return ok_status();
}

// A list of a number a layer, or one for all.
Result<std::vector<int32_t>> numbers_of_layers(const GgufFile& file, const std::string& name,
                                               const ModelConfig& config, int32_t max) {
  std::vector<int32_t> numbers;
  const GgufEntry* const entry = file.find(name);
  if (entry == nullptr || !std::holds_alternative<GgufArray>(entry->value)) return numbers;
  const auto& list = std::get<GgufArray>(entry->value);
  for (size_t i = 0; i < std::min(list.size(), static_cast<size_t>(config.layers)); ++i) {
    const auto number = list.int_at(i);
    if (!number || *number < 1 || *number > max) {
      return file.corrupt_field(name, fmt::format("is no list of numbers from 1 to {}", max));
    }
    numbers.push_back(static_cast<int32_t>(*number));
  }
  if (std::ssize(numbers) == config.layers) return numbers;
  return file.corrupt_field(name,
                            fmt::format("{} numbers for {} layers", list.size(), config.layers));
}

// Key heads of layers that slide and of the others, each alike.
Status read_gguf_mimo2(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  experts.scores = ExpertScores::kSigmoid;
  experts.normalised = true;
  const auto layers = static_cast<size_t>(config.layers);
  for (size_t i = 0; i < layers; ++i) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    experts.dense_layers.push_back(file.find_tensor(router) == nullptr);
  }
  const std::string name = source.name_of(&ModelConfig::kv_heads);
  HR_ASSIGN_OR_RETURN(const std::vector<int32_t> listed,
                      numbers_of_layers(file, name, config, kModelLimits.heads_max));
  HeadSizes& sizes = config.mixers.head_sizes;
  for (size_t i = 0; i < listed.size(); ++i) {
    const bool slides =
        config.window > 0 && (config.sliding_layers.empty() || config.sliding_layers[i]);
    int32_t& heads = slides ? sizes.sliding_kv_heads : config.kv_heads;
    if (heads == 0) heads = listed[i];
    if (heads == listed[i]) continue;
    return file.unsupported_field(name,
                                  fmt::format("layers of {} and of {} heads", heads, listed[i]));
  }
  if (config.kv_heads == 0) config.kv_heads = std::max(sizes.sliding_kv_heads, 1);
  return ok_status();
}

Status read_gguf_laguna(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  constexpr int32_t kPeriod = 4;  // as llama.cpp takes it where a file does not say
  if (!config.experts.scores) config.experts.scores = ExpertScores::kSigmoid;
  for (int32_t i = 0; config.window > 0 && std::ssize(config.sliding_layers) < config.layers; ++i) {
    config.sliding_layers.push_back(i % kPeriod != 0);
  }
  HR_ASSIGN_OR_RETURN(
      config.mixers.head_sizes.queries,
      numbers_of_layers(file, source.name_of(&ModelConfig::heads), config, kModelLimits.heads_max));
  const std::vector<int32_t>& queries = config.mixers.head_sizes.queries;
  if (config.heads == 0 && !queries.empty()) config.heads = queries.front();
  const GgufTensor* const gates = file.find_tensor("blk.0.attn_gate.weight");
  config.mixers.head_sizes.gates_of_heads =
      gates != nullptr && gates->shape.rank() == 2 && gates->shape[0] == config.heads;
  return ok_status();
}

// A number a layer, those that draft among them, or one for all.
Result<std::vector<float>> read_gguf_limits(const GgufFile& file, const std::string& name,
                                            const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.layers);
  std::vector<float> limits;
  const GgufEntry* const entry = file.find(name);
  if (entry == nullptr) return limits;
  const auto* const list = std::get_if<GgufArray>(&entry->value);
  std::optional<double> given;
  if (list == nullptr) {
    HR_ASSIGN_OR_RETURN(given, file.require_float(name));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (list != nullptr) given = i < list->size() ? list->float_at(i) : std::nullopt;
    const double limit = given.value_or(-1);
    if (!(limit >= 0 && limit <= kLimitMax)) {
      return file.corrupt_field(name, fmt::format("is no list of {} limits", layers));
    }
    limits.push_back(static_cast<float>(limit));
  }
  if (std::ranges::count(limits, 0.0f) == std::ssize(limits)) limits.clear();
  return limits;
}

// In layers that see all, half of what a file names rotates.
Status read_gguf_step(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  if (!experts.scores) experts.scores = ExpertScores::kSigmoid;
  for (int32_t i = 0; i < config.layers; ++i) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    experts.dense_layers.push_back(file.find_tensor(router) == nullptr);
  }
  HeadSizes& sizes = config.mixers.head_sizes;
  sizes.gates_of_heads = true;
  HR_ASSIGN_OR_RETURN(sizes.queries, numbers_of_layers(file, source.name_of(&ModelConfig::heads),
                                                       config, kModelLimits.heads_max));
  if (config.heads == 0 && !sizes.queries.empty()) config.heads = sizes.queries.front();
  const std::string name = source.name_of(&ModelConfig::kv_heads);
  HR_ASSIGN_OR_RETURN(const std::vector<int32_t> listed,
                      numbers_of_layers(file, name, config, kModelLimits.heads_max));
  for (const int32_t heads : listed) {
    if (config.kv_heads == 0) config.kv_heads = heads;
    if (config.kv_heads == heads) continue;
    return file.unsupported_field(
        name, fmt::format("layers of {} and of {} heads", config.kv_heads, heads));
  }
  const int32_t rotated = config.rope_dim > 0 ? config.rope_dim : config.head_dim;
  if (sizes.sliding_rope_dim == 0) sizes.sliding_rope_dim = rotated;
  config.rope_dim = rotated / 2;
  HR_ASSIGN_OR_RETURN(experts.limits, read_gguf_limits(file, "step35.swiglu_clamp_exp", config));
  HR_ASSIGN_OR_RETURN(experts.whole_limits,
                      read_gguf_limits(file, "step35.swiglu_clamp_shexp", config));
  return ok_status();
}

}  // namespace

void mimo2_defaults(ModelConfig& config) {
  config.rope_theta = 5e6;
  config.rope_theta_local = 1e4;
  config.context_length = 131072;
  config.rms_eps = 1e-5f;
  config.kv_heads = 4;
  config.head_dim = 192;
  config.window = 129;
  config.mixers.rotated = 0.334;
  config.mixers.head_sizes = {.value_dim = 128, .value_scale = 0.707f};
  config.experts = {.count = 256,
                    .used = 8,
                    .width = 2048,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void laguna_defaults(ModelConfig& config) {
  config.rope_theta = 5e5;
  config.rope_theta_local = 1e4;
  config.context_length = 131072;
  config.rms_eps = 1e-6f;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.window = 512;
  config.experts = {.count = 256,
                    .used = 8,
                    .width = 512,
                    .shared_width = 512,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void step_defaults(ModelConfig& config) {
  config.vocab = 128815;
  config.hidden = 4096;
  config.ffn = 11264;
  config.layers = 45;
  config.heads = 64;
  config.rope_theta = 1e4;
  config.context_length = 128000;
  config.rms_eps = 1e-5f;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.experts = {.count = 288,
                    .used = 8,
                    .width = 1280,
                    .shared_width = 1280,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 3};
}

void lfm3_defaults(ModelConfig& config) {
  config.rope_theta = 1e6;
  config.rope_theta_local = 1e4;
  config.context_length = 128000;
  config.rms_eps = 1e-5f;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.window = 256;
  config.tied_embeddings = true;
  config.mixers.conv_taps = 7;
}
void flint_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 262144;
  config.rms_eps = 1e-6f;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.window = 513;
  config.experts = {.count = 256,
                    .used = 6,
                    .width = 512,
                    .shared_width = 1024,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 2};
}

void kolibri_defaults(ModelConfig& config) {
  flint_defaults(config);
  config.ffn = 1;  // no layer has a dense network
  config.experts = {.count = 384,
                    .used = 6,
                    .width = 512,
                    .shared_width = 512,
                    .biases_logits = true,
                    .normalised = false,
                    .scores = ExpertScores::kSigmoid};
}

Status read_windowed(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture == "lfm3") return read_lfm3(json, source, config);
  if (config.architecture == "flint") return read_flint(json, config);
  if (config.architecture == "kolibri1" && config.experts.count == 0) {
    return source.corrupt_field("num_experts", "0 experts: each layer of this class has some");
  }
  if (config.architecture == "mimo2") {
    HR_RETURN_IF_ERROR(read_mimo2(json, source, config));
  } else if (config.architecture == "laguna") {
    HR_RETURN_IF_ERROR(read_laguna(json, source, config));
  } else if (config.architecture == "step35") {
    HR_RETURN_IF_ERROR(read_step(json, source, config));
  } else {
    return ok_status();
  }
  return check_head_sizes(source, config);
}

Status read_gguf_windowed(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture == "mimo2") {
    HR_RETURN_IF_ERROR(read_gguf_mimo2(file, source, config));
  } else if (config.architecture == "laguna") {
    HR_RETURN_IF_ERROR(read_gguf_laguna(file, source, config));
  } else if (config.architecture == "step35") {
    HR_RETURN_IF_ERROR(read_gguf_step(file, source, config));
  } else {
    return ok_status();
  }
  return check_head_sizes(source, config);
}

}  // namespace headrace
