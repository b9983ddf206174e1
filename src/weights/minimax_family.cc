#include "weights/minimax_family.h"

#include <algorithm>
#include <vector>

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

// A list that has one of two values for each layer.
struct LayerFlags {
  std::string_view name;
  Json on, off;
};
Result<std::vector<bool>> flags_of_layers(const Json& list, const LayerFlags& of,
                                          const ConfigSource& source, const ModelConfig& config) {
  if (!list.is_array() || std::ssize(list.as_array()) != config.layers) {
    return source.corrupt_field(of.name, fmt::format("is no list of {} layers", config.layers));
  }
  std::vector<bool> flags;
  for (const Json& layer : list.as_array()) {
    if (layer != of.on && layer != of.off) {
      return source.unsupported_field(
          of.name, fmt::format("has a layer that is not supported (known: {}, {})",
                               write_json(of.on), write_json(of.off)));
    }
    flags.push_back(layer == of.on);
  }
  return flags;
}

// As the hub's own files have them.
Status read_hub_index(const Json& said, const ConfigSource& source, ModelConfig& config) {
  BlockIndexConfig& index = config.mixers.minimax.block_index;
  const struct {
    std::string_view name;
    int32_t& value;
    int32_t min, max;
  } numbers[] = {{"sparse_num_index_heads", index.heads, 1, kModelLimits.heads_max},
                 {"sparse_index_dim", index.dim, 2, kModelLimits.head_dim_max},
                 {"sparse_block_size", index.tokens, 1, kModelLimits.index_top_max},
                 {"sparse_topk_blocks", index.top, 1, kModelLimits.index_top_max},
                 {"sparse_local_block", index.local, 0, kModelLimits.index_top_max}};
  for (const auto& number : numbers) {
    HR_ASSIGN_OR_RETURN(number.value,
                        count_or(said, source, number.name, number.value, number.min, number.max));
  }
  return ok_status();
}

Status check_block_index(const ConfigSource& source, const ModelConfig& config) {
  const BlockIndexConfig& index = config.mixers.minimax.block_index;
  if (index.heads != config.kv_heads) {
    return source.unsupported_field(
        "index_n_heads", fmt::format("{} is not supported, only one for each of {} key heads",
                                     index.heads, config.kv_heads));
  }
  if (index.dim < config.rope_dim) {
    return source.unsupported_field(
        "index_head_dim", fmt::format("{} is not supported, only the {} that rotate or more",
                                      index.dim, config.rope_dim));
  }
  if (index.local > index.top) {
    return source.corrupt_field("index_local_blocks",
                                fmt::format("{} are more than {} in all", index.local, index.top));
  }
  if (int64_t{index.top} * index.tokens > kModelLimits.index_top_max) {
    return source.unsupported_field(
        "index_topk_blocks", fmt::format("{} of {} keys are more than {}", index.top, index.tokens,
                                         kModelLimits.index_top_max));
  }
  return ok_status();
}

// Files say how many components of a head rotate, or their share, or both.
Status check_rotary_dim(const Json& json, const ConfigSource& source, const ModelConfig& config) {
  const Json* const count = said_member(json, "rotary_dim");
  const Json* const rotation = said_member(json, "rope_parameters");
  const Json* share = said_member(json, "partial_rotary_factor");
  if (rotation != nullptr && rotation->is_object() &&
      said_member(*rotation, "partial_rotary_factor") != nullptr) {
    share = said_member(*rotation, "partial_rotary_factor");
  }
  if (count == nullptr || share == nullptr || !share->is_number()) return ok_status();
  if (static_cast<int32_t>(config.head_dim * share->as_double()) == config.rope_dim) {
    return ok_status();
  }
  return source.corrupt_field("rotary_dim",
                              fmt::format("{} is not the share of a head of {} that "
                                          "partial_rotary_factor says: leave one of both out",
                                          config.rope_dim, config.head_dim));
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

void minimax_m3_defaults(ModelConfig& config) {
  config.rope_theta = 5e6;
  config.context_length = 524288;
  config.rms_eps = 1e-6f;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.ffn = 3072;  // of experts
  config.experts = {.count = 128,
                    .used = 4,
                    .shared_width = 3072,
                    .gate_limit = 7,
                    .gate_slope = 1.702f,
                    .scale = 2,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid};
  config.mixers.minimax.block_index = {
      .heads = 4, .dim = 128, .tokens = 128, .top = 16, .local = 1};
}

Status read_minimax_m3(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "minimax-m3") return ok_status();
  config.experts.width = config.ffn;
  HR_ASSIGN_OR_RETURN(config.ffn, count_or(json, source, "dense_intermediate_size", 12288, 1,
                                           kModelLimits.ffn_max));
  const Json* const networks = said_member(json, "moe_layer_freq");
  if (networks != nullptr && said_member(json, "mlp_layer_types") == nullptr) {
    HR_ASSIGN_OR_RETURN(
        config.experts.dense_layers,
        flags_of_layers(*networks, {"moe_layer_freq", Json(0), Json(1)}, source, config));
  }
  BlockIndexConfig& index = config.mixers.minimax.block_index;
  const Json* const sparse = said_member(json, "sparse_attention_config");
  if (sparse != nullptr) HR_RETURN_IF_ERROR(read_hub_index(*sparse, source, config));
  constexpr std::string_view kListed = "sparse_attention_freq";
  const Json* const types = said_member(json, "layer_types");
  const Json* const listed = sparse == nullptr ? nullptr : said_member(*sparse, kListed);
  if (types != nullptr) {
    const LayerFlags names{"layer_types", Json("minimax_m3_sparse"), Json("full_attention")};
    HR_ASSIGN_OR_RETURN(index.layers, flags_of_layers(*types, names, source, config));
  } else if (listed != nullptr) {
    HR_ASSIGN_OR_RETURN(index.layers,
                        flags_of_layers(*listed, {kListed, Json(1), Json(0)}, source, config));
  }
  if (std::ranges::find(index.layers, true) == index.layers.end()) index.layers.clear();
  HR_RETURN_IF_ERROR(check_rotary_dim(json, source, config));
  return index.layers.empty() ? ok_status() : check_block_index(source, config);
}

Status read_gguf_minimax(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  if (source.family->other_mixer != LayerMixer::kLightning) return ok_status();
  AddedScales& added = config.mixers.minimax.added;
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
