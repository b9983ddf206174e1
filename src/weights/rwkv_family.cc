#include "weights/rwkv_family.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace headrace {
namespace {

const Json* given_key(const Json& json, std::string_view name) {
  const Json* member = json.find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

// A rank that a file leaves to the class: a multiple of 32.
int32_t assumed_rank(const ModelConfig& config, double times) {
  const double rank = std::round(times * std::sqrt(static_cast<double>(config.hidden)) / 32) * 32;
  return std::max(32, static_cast<int32_t>(rank));
}

// Heads, and what every layer is.
Status finish_rwkv7(const ConfigSource& source, ModelConfig& config) {
  const RwkvConfig& rwkv = config.mixers.rwkv;
  const std::string name = source.name_of(&RwkvConfig::head_dim);
  if (rwkv.head_dim == 0) return source.corrupt_field(name, "missing");
  if (config.hidden % rwkv.head_dim != 0) {
    return source.corrupt_field(name, fmt::format("heads of {} do not divide the hidden size {}",
                                                  rwkv.head_dim, config.hidden));
  }
  config.mixers.by_layer.assign(static_cast<size_t>(config.layers), LayerMixer::kRwkv7);
  return ok_status();
}

}  // namespace

void rwkv7_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = kModelLimits.context_length_max;
  config.rms_eps = 1e-5f;
  config.heads = 1;  // there are none that attend
  config.mixers.one_part = true;
}

Status read_rwkv7(const Json& json, const ConfigSource& source, ModelConfig& config) {
  for (const std::string_view name : {"norm_first", "norm_bias"}) {
    const Json* member = given_key(json, name);
    if (member == nullptr || *member == Json(true)) continue;
    return source.unsupported_field(name, "is not supported, only true");
  }
  if (given_key(json, "attn") != nullptr) {
    return source.unsupported_field("attn", "layers that attend are not supported, only null");
  }
  if (const Json* widths = given_key(json, "value_dim")) {
    const Json::Array list = widths->is_array() ? widths->as_array() : Json::Array{*widths};
    for (const Json& width : list) {
      if (width == Json(int64_t{config.hidden})) continue;
      return source.unsupported_field(
          "value_dim",
          fmt::format("only values of the hidden size, {}, are supported", config.hidden));
    }
  }
  RwkvConfig& rwkv = config.mixers.rwkv;
  const Json* heads = given_key(json, "num_heads");
  if (rwkv.head_dim == 0 && heads != nullptr) {
    if (!heads->is_int() || heads->as_int() < 1 || config.hidden % heads->as_int() != 0) {
      return source.corrupt_field("num_heads", "is no number that divides hidden_size");
    }
    rwkv.head_dim = static_cast<int32_t>(config.hidden / heads->as_int());
  }
  const double factor = rwkv.head_dim / 64.0;
  if (rwkv.decay_rank == 0) rwkv.decay_rank = assumed_rank(config, 2.5 * factor);
  if (rwkv.rate_rank == 0) rwkv.rate_rank = assumed_rank(config, 2.5 * factor);
  if (rwkv.value_rank == 0) rwkv.value_rank = assumed_rank(config, 1.7 * factor);
  if (rwkv.gate_rank == 0) rwkv.gate_rank = assumed_rank(config, 5);
  rwkv.norm_eps = static_cast<float>(rwkv.head_dim) * config.rms_eps;
  const Json* ratio = given_key(json, "hidden_ratio");
  if (given_key(json, "intermediate_size") == nullptr && ratio != nullptr) {
    const double width = ratio->is_number() ? ratio->as_double() * config.hidden : 0;
    if (!(width >= 1 && width <= kModelLimits.ffn_max - 32)) {
      return source.corrupt_field("hidden_ratio", "is no factor of the width of networks");
    }
    config.ffn = (static_cast<int32_t>(width) + 31) / 32 * 32;
  }
  return finish_rwkv7(source, config);
}

Status read_gguf_rwkv7(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  RwkvConfig& rwkv = config.mixers.rwkv;
  config.mixers.one_part = true;
  rwkv.norm_eps = 64e-5f;  // llama.cpp's, which files do not say
  rwkv.shifts_joined = true;
  for (const auto& [member, rank] : {std::pair(&RwkvConfig::decay_rank, rwkv.decay_rank),
                                     {&RwkvConfig::rate_rank, rwkv.rate_rank},
                                     {&RwkvConfig::value_rank, rwkv.value_rank},
                                     {&RwkvConfig::gate_rank, rwkv.gate_rank}}) {
    if (rank > 0) continue;
    return file.corrupt_field(source.name_of(member), "missing");
  }
  return finish_rwkv7(source, config);
}

}  // namespace headrace
