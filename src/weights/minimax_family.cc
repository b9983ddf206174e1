#include "weights/minimax_family.h"

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

// What the hub's own files may say and nothing here does.
Status refuse_other_minimaxes(const Json& json, const ConfigSource& source) {
  const Json* const behind = said_member(json, "postnorm");
  if (behind != nullptr && *behind != Json(true)) {
    return source.unsupported_field("postnorm", "is not supported, only true or none");
  }
  const Json* const shared = said_member(json, "shared_intermediate_size");
  const bool none =
      shared == nullptr || *shared == Json(0) || *shared == Json(Json::Array{Json(0)});
  if (none) return ok_status();
  return source.unsupported_field("shared_intermediate_size", "is not supported, only 0 or none");
}

}  // namespace

void minimax_defaults(ModelConfig& config) {
  config.rope_theta = 1e6;
  config.context_length = 131072;
  config.rms_eps = 1e-5f;
  config.kv_heads = 8;
  config.experts = {.count = 8, .used = 2, .normalised = true};
}

Status read_minimax(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(refuse_other_minimaxes(json, source));
  const Json* const types = said_member(json, "layer_types");
  const Json* const listed = types != nullptr ? types : said_member(json, "attn_type_list");
  std::vector<LayerMixer>& layers = config.mixers.by_layer;
  if (listed == nullptr) {
    for (int32_t i = 0; i < config.layers; ++i) {
      layers.push_back(i % 2 == 0 ? LayerMixer::kAttention : LayerMixer::kLightning);
    }
    return ok_status();
  }
  const std::string_view name = types != nullptr ? "layer_types" : "attn_type_list";
  if (!listed->is_array() || std::ssize(listed->as_array()) != config.layers) {
    return source.corrupt_field(name, fmt::format("is no list of {} layers", config.layers));
  }
  for (const Json& layer : listed->as_array()) {
    const bool attends = layer == Json("full_attention") || layer == Json(1);
    if (!attends && layer != Json("linear_attention") && layer != Json(0)) {
      return source.unsupported_field(
          name, "has a layer that is not supported (known: full_attention, linear_attention)");
    }
    layers.push_back(attends ? LayerMixer::kAttention : LayerMixer::kLightning);
  }
  return ok_status();
}

Status read_gguf_minimax(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  if (source.family->other_mixer != LayerMixer::kLightning) return ok_status();
  AddedScales& added = config.mixers.added;
  added.linear_rows = added.network_rows = added.full_rows;
  constexpr int32_t kPeriod = 8;  // as llama.cpp takes it where a file does not say
  const std::string name = fmt::format("{}.attention.recurrent_layers", config.architecture);
  HR_ASSIGN_OR_RETURN(const auto recurrent, file.optional_array(name));
  if (recurrent && std::ssize(*recurrent) < config.layers) {
    return file.corrupt_field(
        name, fmt::format("{} flags for {} layers", recurrent->size(), config.layers));
  }
  for (int32_t i = 0; i < config.layers; ++i) {
    const auto flag = recurrent ? recurrent->int_at(static_cast<size_t>(i)) : (i + 1) % kPeriod;
    if (!flag) return file.corrupt_field(name, "is no list of flags, one a layer");
    config.mixers.by_layer.push_back(*flag == 0 ? LayerMixer::kAttention : LayerMixer::kLightning);
  }
  return ok_status();
}

}  // namespace headrace
