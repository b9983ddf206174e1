#include "weights/deepseek4_family.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

using Kind = SharedKeysConfig::Kind;

constexpr int32_t kRateMin = 2, kRateMax = 4096, kRoundsMax = 1000;
constexpr struct {
  std::string_view name;
  int32_t ratio;  // in files that say this in place of it
  Kind kind;
} kKinds[] = {{"sliding_attention", 0, Kind::kNone},
              {"compressed_sparse_attention", 4, Kind::kIndexed},
              {"heavily_compressed_attention", 128, Kind::kAll}};

const Json* said_object(const Json& object, std::string_view name) {
  const Json* const member = said_member(object, name);
  return member != nullptr && member->is_object() ? member : nullptr;
}

// The rotation of layers that share keys, where a file has one object for both.
Json shared_rotation(const Json& json, const Json* said) {
  Json rotation = Json::object();
  if (said != nullptr) {
    for (const auto& [key, value] : said->as_object()) {
      if (key != "main" && key != "compress") rotation.set(key, value);
    }
  }
  const Json* const theta = said_member(json, "compress_rope_theta");
  rotation.set("rope_theta", theta == nullptr ? Json(160000.0) : *theta);
  const Json* type = said_member(rotation, "rope_type");
  if (type == nullptr) type = said_member(rotation, "type");
  const bool is_yarn = type != nullptr && *type == Json("yarn");
  if (is_yarn && said_member(rotation, "attention_factor") == nullptr) {
    rotation.set("attention_factor", Json(1.0));
  }
  return rotation;
}

Result<Kind> kind_of(const Json& entry, bool by_ratio, const ConfigSource& source) {
  for (const auto& known : kKinds) {
    if (entry == (by_ratio ? Json(known.ratio) : Json(std::string(known.name)))) return known.kind;
  }
  if (by_ratio) {
    return source.unsupported_field("compress_ratios", fmt::format("{} is not supported (known: 0, "
                                                                   "4, 128)",
                                                                   write_json(entry)));
  }
  return source.unsupported_field(
      "layer_types", fmt::format("{} is not supported (known: sliding_attention, "
                                 "compressed_sparse_attention, heavily_compressed_attention)",
                                 write_json(entry)));
}

Status read_kinds(const Json& json, const ConfigSource& source, ModelConfig& config) {
  std::vector<Kind>& kinds = config.mixers.latent.shared_keys.layers;
  const Json* const types = said_member(json, "layer_types");
  const Json* const ratios = said_member(json, "compress_ratios");
  if (types == nullptr && ratios == nullptr) {
    for (int32_t i = 0; i < config.layers; ++i) {
      kinds.push_back(i >= 2 && i % 2 == 1 ? Kind::kIndexed : Kind::kAll);
    }
    return ok_status();
  }
  HR_ASSIGN_OR_RETURN(
      const auto entries,
      entries_of_layers(types != nullptr ? *types : *ratios, source,
                        types != nullptr ? "layer_types" : "compress_ratios", config));
  for (const Json& entry : entries) {
    HR_ASSIGN_OR_RETURN(const Kind kind, kind_of(entry, types == nullptr, source));
    kinds.push_back(kind);
  }
  return ok_status();
}

Status read_rates(const Json& json, const ConfigSource& source, ModelConfig& config) {
  SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  const Json none = Json::object();
  const Json* const rates = said_object(json, "compress_rates");
  const struct {
    std::string_view in_rates, alone;
    int32_t& rate;
  } numbers[] = {{"compressed_sparse_attention", "compress_rate_csa", keys.indexed_rate},
                 {"heavily_compressed_attention", "compress_rate_hca", keys.all_rate}};
  for (const auto& number : numbers) {
    HR_ASSIGN_OR_RETURN(number.rate, count_or(rates == nullptr ? none : *rates, source,
                                              number.in_rates, number.rate, kRateMin, kRateMax));
    HR_ASSIGN_OR_RETURN(number.rate,
                        count_or(json, source, number.alone, number.rate, kRateMin, kRateMax));
  }
  return ok_status();
}

// Which networks go by the token.
Status read_networks(const Json& json, const ConfigSource& source, ModelConfig& config) {
  std::vector<bool>& by_token = config.mixers.latent.shared_keys.networks_by_token;
  const Json* const types = said_member(json, "mlp_layer_types");
  if (types == nullptr) {
    HR_ASSIGN_OR_RETURN(const int32_t first,
                        count_or(json, source, "num_hash_layers", 3, 0, kModelLimits.layers_max));
    for (int32_t i = 0; i < config.layers; ++i) by_token.push_back(i < first);
    return ok_status();
  }
  HR_ASSIGN_OR_RETURN(const auto entries,
                      entries_of_layers(*types, source, "mlp_layer_types", config));
  for (const Json& entry : entries) {
    if (entry != Json("hash_moe") && entry != Json("moe")) {
      return source.unsupported_field(
          "mlp_layer_types",
          fmt::format("{} is not supported (known: hash_moe, moe)", write_json(entry)));
    }
    by_token.push_back(entry == Json("hash_moe"));
  }
  return ok_status();
}

Status read_scores(const Json& json, const ConfigSource& source, ModelConfig& config) {
  const Json* const scores = said_member(json, "scoring_func");
  if (scores == nullptr || *scores == Json("sqrtsoftplus")) return ok_status();
  if (*scores == Json("sigmoid")) {
    config.experts.scores = ExpertScores::kSigmoid;
    return ok_status();
  }
  return source.unsupported_field(
      "scoring_func",
      fmt::format("{} is not supported (known: sqrtsoftplus, sigmoid)", write_json(*scores)));
}

// Both rotations turn as many components of a head.
Status check_rotations(const Json& json, const ConfigSource& source) {
  const Json* const both = said_object(json, "rope_parameters");
  if (both == nullptr) return ok_status();
  const Json* const shared = said_object(*both, "full_attention");
  const Json* const main = said_object(*both, "sliding_attention");
  if (shared == nullptr || main == nullptr) return ok_status();
  const Json* const of_shared = said_member(*shared, "partial_rotary_factor");
  const Json* const of_main = said_member(*main, "partial_rotary_factor");
  const bool alike = (of_shared == nullptr) == (of_main == nullptr) &&
                     (of_shared == nullptr || *of_shared == *of_main);
  if (alike) return ok_status();
  return source.unsupported_field("rope_parameters",
                                  "main and compress of different partial_rotary_factor are not "
                                  "supported");
}

Status check_sizes(const ConfigSource& source, const ModelConfig& config) {
  const SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  if (config.heads % keys.groups != 0) {
    return source.corrupt_field(
        "o_groups", fmt::format("{} groups do not divide {} heads", keys.groups, config.heads));
  }
  if (config.window < 1) return source.corrupt_field("sliding_window", "0 tokens are no window");
  const bool indexed = std::ranges::find(keys.layers, Kind::kIndexed) != keys.layers.end();
  if (indexed && config.mixers.latent.index_dim < config.rope_dim) {
    return source.corrupt_field("index_head_dim",
                                fmt::format("{} is less than the {} that rotate",
                                            config.mixers.latent.index_dim, config.rope_dim));
  }
  return ok_status();
}

}  // namespace

void deepseek4_defaults(ModelConfig& config) {
  config.rope_theta = 160000;
  config.rope_theta_local = 1e4;
  config.context_length = 1048576;
  config.rms_eps = 1e-6f;
  config.vocab = 129280;
  config.hidden = 4096;
  config.layers = 43;
  config.heads = 64;
  config.kv_heads = 1;
  config.head_dim = 512;
  config.ffn = 2048;  // nothing has it: every layer is a mixture
  config.window = 128;
  config.mixers.rotated = 64.0 / 512;
  config.mixers.latent.query_rank = 1024;
  config.mixers.latent.index_heads = 64;
  config.mixers.latent.index_dim = 128;
  config.mixers.latent.index_top = 512;
  config.mixers.latent.shared_keys = {.groups = 8, .group_rank = 1024, .stream_rounds = 20};
  config.mixers.gemma.streams = 4;
  config.mixers.gemma.hyper_magnitude = 2;
  config.mixers.gemma.hyper_eps = 1e-6f;
  config.experts = {.count = 256,
                    .used = 6,
                    .width = 2048,
                    .shared_count = 1,
                    .gate_limit = 10,
                    .scale = 1.5f,
                    .scores = ExpertScores::kSqrtSoftplus};
}

Json deepseek4_spelling(const Json& json) {
  Json read = Json::object();
  const Json* said = nullptr;
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    if (const Json* const found = said_object(json, name)) said = found;
  }
  for (const auto& [key, value] : json.as_object()) {
    const bool rotates = key == "rope_scaling" || key == "rope_parameters" || key == "rope_theta";
    if (!rotates) read.set(key, value);
  }
  for (const auto& [own, other] : {std::pair("moe_intermediate_size", "intermediate_size"),
                                   {"n_routed_experts", "num_local_experts"}}) {
    const Json* const value = said_member(json, other);
    if (value != nullptr && said_member(json, own) == nullptr) read.set(own, *value);
  }
  const Json* const heads = said_member(json, "head_dim");
  const Json* const rotated = said_member(json, "qk_rope_head_dim");
  if (rotated != nullptr && rotated->is_number() &&
      said_member(json, "partial_rotary_factor") == nullptr) {
    const double head_dim = heads != nullptr && heads->is_number() ? heads->as_double() : 512;
    read.set("partial_rotary_factor", Json(rotated->as_double() / head_dim));
  }
  Json rotations = Json::object();
  const Json* const main = said == nullptr ? nullptr : said_object(*said, "main");
  const Json* const shared = said == nullptr ? nullptr : said_object(*said, "compress");
  if (main != nullptr && shared != nullptr) {
    rotations.set("sliding_attention", *main);
    rotations.set("full_attention", *shared);
  } else {
    Json plain = Json::object();
    if (const Json* const theta = said_member(json, "rope_theta")) plain.set("rope_theta", *theta);
    rotations.set("sliding_attention", plain);
    rotations.set("full_attention", shared_rotation(json, said));
  }
  read.set("rope_parameters", rotations);
  return read;
}

Status read_deepseek4(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "deepseek4") return ok_status();
  config.kv_heads = 1;
  SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  HR_ASSIGN_OR_RETURN(keys.groups,
                      count_or(json, source, "o_groups", keys.groups, 1, kModelLimits.heads_max));
  HR_ASSIGN_OR_RETURN(keys.group_rank, count_or(json, source, "o_lora_rank", keys.group_rank, 1,
                                                kModelLimits.hidden_max));
  HR_ASSIGN_OR_RETURN(keys.stream_rounds, count_or(json, source, "hc_sinkhorn_iters",
                                                   keys.stream_rounds, 0, kRoundsMax));
  keys.stream_rounds = std::max(keys.stream_rounds, 1);
  HR_RETURN_IF_ERROR(read_rates(json, source, config));
  HR_RETURN_IF_ERROR(read_kinds(json, source, config));
  HR_RETURN_IF_ERROR(read_networks(json, source, config));
  HR_RETURN_IF_ERROR(read_scores(json, source, config));
  HR_RETURN_IF_ERROR(check_rotations(json, source));
  HR_ASSIGN_OR_RETURN(const bool biases, flag_or(json, source, "mlp_bias", false));
  if (biases) return source.unsupported_field("mlp_bias", "is not supported");
  const Json* const of_experts = said_member(json, "expert_dtype");
  if (of_experts != nullptr && *of_experts != Json("fp8")) {
    return source.unsupported_field(
        "expert_dtype", fmt::format("{} is not supported, only none", write_json(*of_experts)));
  }
  return check_sizes(source, config);
}

}  // namespace headrace
