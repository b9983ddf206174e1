#include "weights/qwen35_families.h"

#include <algorithm>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

// Hashes of all lengths, and layers that have some: an order of magnitude over those that are
// known.
constexpr int32_t kNgramSizeMax = 16;
constexpr int32_t kHashesMax = 1024;
constexpr int32_t kHashRowsMax = 1 << 28;

// By name, or all but each n-th.
Status read_kinds(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kTypes = "layer_types";
  std::vector<LayerMixer>& kinds = config.mixers.by_layer;
  const Json* const types = said_member(json, kTypes);
  if (types == nullptr) {
    HR_ASSIGN_OR_RETURN(const int32_t period, count_or(json, source, "full_attention_interval", 4,
                                                       1, kModelLimits.layers_max));
    for (int32_t i = 0; i < config.layers; ++i) {
      kinds.push_back((i + 1) % period == 0 ? LayerMixer::kAttention : LayerMixer::kDeltaNet);
    }
    return ok_status();
  }
  HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*types, source, kTypes, config));
  for (const Json& type : entries) {
    const bool attends = type == Json("indexed_attention") || type == Json("full_attention");
    if (!attends && type != Json("linear_attention")) {
      return source.unsupported_field(
          kTypes, fmt::format("{} is not supported (known: linear_attention, indexed_attention, "
                              "full_attention)",
                              write_json(type)));
    }
    kinds.push_back(attends ? LayerMixer::kAttention : LayerMixer::kDeltaNet);
  }
  return ok_status();
}

// Of the index: so many keys at most, of whole blocks.
Status read_index(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kBudget = "indexer_budget";
  BlockIndexConfig& index = config.mixers.minimax.block_index;
  for (const auto& [name, value] : {std::pair("indexer_n_heads", index.heads),
                                    {"indexer_head_dim", index.dim},
                                    {"indexer_compress_ratio", index.tokens}}) {
    if (value == 0) return source.corrupt_field(name, "missing");
  }
  HR_ASSIGN_OR_RETURN(const int32_t keys,
                      count_or(json, source, kBudget, 0, 0, kModelLimits.index_top_max));
  if (keys == 0 || keys % index.tokens != 0) {
    return source.corrupt_field(kBudget,
                                fmt::format("{} is no number of blocks of {}", keys, index.tokens));
  }
  HR_ASSIGN_OR_RETURN(const int32_t key_heads,
                      count_or(json, source, "indexer_kv_heads", 1, 1, kModelLimits.heads_max));
  if (key_heads != 1) {
    return source.unsupported_field("indexer_kv_heads",
                                    fmt::format("{} is not supported, only 1", key_heads));
  }
  const int32_t rotated = config.rope_dim > 0 ? config.rope_dim : config.head_dim;
  if (index.dim < rotated) {
    return source.corrupt_field(
        "indexer_head_dim", fmt::format("{} is less than the {} that rotate", index.dim, rotated));
  }
  index.pooled = true;
  index.top = keys / index.tokens;
  for (const LayerMixer kind : config.mixers.by_layer) {
    index.layers.push_back(kind == LayerMixer::kAttention);
  }
  return ok_status();
}

Status read_gates(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kGates = "output_gate_type";
  const Json* const kind = said_member(json, kGates);
  if (kind == nullptr || *kind == Json("silu")) return ok_status();
  config.mixers.delta.sigmoid_gates = *kind == Json("sigmoid");
  if (config.mixers.delta.sigmoid_gates) return ok_status();
  return source.unsupported_field(
      kGates, fmt::format("{} is not supported (known: silu, sigmoid)", write_json(*kind)));
}

// Layers are counted from 1.
Status read_ngram_layers(const Json& list, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kLayers = "ple_layer_ids";
  std::vector<int32_t>& layers = config.mixers.gemma.ngrams.layers;
  if (!list.is_array()) return source.corrupt_field(kLayers, "is no list of layers");
  for (const Json& layer : list.as_array()) {
    const int64_t number = layer.is_int() ? layer.as_int() : 0;
    if (number < 1 || number > config.layers) {
      return source.corrupt_field(
          kLayers, fmt::format("{} is none of {} layers", write_json(layer), config.layers));
    }
    const auto index = static_cast<int32_t>(number - 1);
    if (config.mixers.of(index) != LayerMixer::kDeltaNet) {
      return source.unsupported_field(kLayers,
                                      fmt::format("layer {} is no linear_attention", number));
    }
    layers.push_back(index);
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return ok_status();
}

// The first where there are several.
Status read_end(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kEnd = "eos_token_id";
  const Json* end = said_member(json, kEnd);
  if (end != nullptr && end->is_array() && !end->as_array().empty()) end = &end->as_array()[0];
  if (end == nullptr || !end->is_int() || end->as_int() < 0 || end->as_int() >= config.vocab) {
    return source.corrupt_field(kEnd, "is no token, which layers of ple_layer_ids need");
  }
  config.mixers.gemma.ngrams.end_id = static_cast<int32_t>(end->as_int());
  return ok_status();
}

Status read_ngrams(const Json& json, const ConfigSource& source, ModelConfig& config) {
  const Json* const layers = said_member(json, "ple_layer_ids");
  if (layers == nullptr) return ok_status();
  NgramConfig& ngrams = config.mixers.gemma.ngrams;
  HR_RETURN_IF_ERROR(read_ngram_layers(*layers, source, config));
  if (ngrams.layers.empty()) return ok_status();
  const struct {
    std::string_view name;
    int32_t& value;
    int32_t assumed, min, max;
  } numbers[] = {{"ple_embed_dim", ngrams.width, config.hidden, 1, kModelLimits.hidden_max},
                 {"ple_conv_kernel_size", ngrams.taps, 4, 2, kModelLimits.conv_taps_max},
                 {"ngram_size", ngrams.size, 3, 2, kNgramSizeMax},
                 {"heads_per_ngram", ngrams.hashes, 8, 1, kHashesMax},
                 {"ngram_vocab_size_base", ngrams.rows_min, 20000000, 1, kHashRowsMax},
                 {"make_ngram_vocab_size_divisible_by", ngrams.rows_divisor, 128, 1, kHashRowsMax},
                 {"split_ngram_parts", ngrams.parts, 512, 1, kNgramPartsMax}};
  for (const auto& number : numbers) {
    HR_ASSIGN_OR_RETURN(
        number.value, count_or(json, source, number.name, number.assumed, number.min, number.max));
  }
  if (ngrams.width % (ngrams.hashes * (ngrams.size - 1)) != 0) {
    return source.corrupt_field("ple_embed_dim",
                                fmt::format("{} are not equally many of {} hashes", ngrams.width,
                                            ngrams.hashes * (ngrams.size - 1)));
  }
  const Json* const seed = said_member(json, "seed");
  if (seed != nullptr && !seed->is_int()) return source.corrupt_field("seed", "is no integer");
  ngrams.seed = seed == nullptr ? 1234 : seed->as_int();
  return read_end(json, source, config);
}

// A flag for each layer, or all but each n-th.
Status read_gguf_kinds(const GgufFile& file, ModelConfig& config) {
  const std::string name = config.architecture + ".attention.recurrent_layers";
  const std::string every = config.architecture + ".full_attention_interval";
  HR_ASSIGN_OR_RETURN(const auto recurrent, file.optional_array(name));
  if (recurrent && std::ssize(*recurrent) < config.layers) {
    return file.corrupt_field(
        name, fmt::format("{} flags for {} layers", recurrent->size(), config.layers));
  }
  HR_ASSIGN_OR_RETURN(const auto interval, file.optional_int(every));
  const int64_t period = interval.value_or(4);
  if (period < 1 || period > kModelLimits.layers_max) {
    return file.corrupt_field(
        every, fmt::format("{} is outside 1 to {}", period, kModelLimits.layers_max));
  }
  config.mixers.by_layer.clear();
  for (int32_t i = 0; i < config.layers; ++i) {
    const auto flag = recurrent ? recurrent->int_at(static_cast<size_t>(i)) : (i + 1) % period;
    if (!flag) return file.corrupt_field(name, "is no list of flags, one a layer");
    config.mixers.by_layer.push_back(*flag == 0 ? LayerMixer::kAttention : LayerMixer::kDeltaNet);
  }
  return ok_status();
}

// The width of the values of all heads.
Status read_gguf_value_dim(const GgufFile& file, ModelConfig& config) {
  MixerConfig& mixers = config.mixers;
  const std::string name = config.architecture + ".ssm.inner_size";
  HR_ASSIGN_OR_RETURN(const int64_t inner, file.require_int(name));
  const int64_t most = int64_t{mixers.value_heads} * kModelLimits.head_dim_max;
  if (inner < 1 || inner > most || inner % mixers.value_heads != 0) {
    return file.corrupt_field(
        name, fmt::format("{} is no width of {} value heads of 1 to {}", inner, mixers.value_heads,
                          kModelLimits.head_dim_max));
  }
  mixers.value_dim = static_cast<int32_t>(inner / mixers.value_heads);
  return ok_status();
}

}  // namespace

void qwen35_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 32768;
  config.rms_eps = 1e-6f;
  config.head_dim = 256;
  config.mixers = {.by_layer = {},
                   .gated_attention = true,
                   .rotated = 0.25,
                   .conv_taps = 4,
                   .key_heads = 16,
                   .value_heads = 32,
                   .key_dim = 128,
                   .value_dim = 128,
                   .rate_is_log = true};
}
void qwen35_moe_defaults(ModelConfig& config) {
  qwen35_defaults(config);
  config.ffn = 1;  // no layer has a dense network
  config.experts = {.count = 256, .used = 8, .width = 512, .shared_width = 512};
}
void qwen3_next_defaults(ModelConfig& config) {
  qwen35_defaults(config);
  config.mixers.tensors_by_head = true;
  config.experts = {
      .count = 512, .used = 10, .width = 512, .shared_width = 512, .normalised = true};
}
void qwen4_defaults(ModelConfig& config) {
  qwen35_moe_defaults(config);
  config.heads = 16;
  config.kv_heads = 2;
  config.mixers.rotated = 1;
  config.mixers.gemma.streams = 4;
  config.mixers.gemma.gate_rank = 320;
  config.experts.count = 512;
  config.experts.used = 10;
  config.experts.normalised = true;
}

Status read_qwen4(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "qwen4exp") return ok_status();
  HR_RETURN_IF_ERROR(read_kinds(json, source, config));
  HR_RETURN_IF_ERROR(read_index(json, source, config));
  HR_RETURN_IF_ERROR(read_gates(json, source, config));
  return read_ngrams(json, source, config);
}

Status read_gguf_delta_net(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  if (source.family->other_mixer != LayerMixer::kDeltaNet) return ok_status();
  HR_RETURN_IF_ERROR(read_gguf_kinds(file, config));
  HR_RETURN_IF_ERROR(read_gguf_value_dim(file, config));
  MixerConfig& mixers = config.mixers;
  mixers.gated_attention = true;
  if (config.experts.count > 0 && !config.experts.normalised) config.experts.normalised = true;
  // The first layer does not attend, and says nothing of those that do.
  config.fused.qkv = false;
  mixers.head_norms.reset();
  mixers.gemma.experts_fused = file.find_tensor("blk.0.ffn_gate_up_exps.weight") != nullptr;
  if (config.architecture != "qwen3next") {
    mixers.delta.tiled = mixers.key_heads != mixers.value_heads;
    return ok_status();
  }
  // Files of llama.cpp's first releases of it have what folders have.
  const auto first = std::ranges::find(mixers.by_layer, LayerMixer::kDeltaNet);
  mixers.tensors_by_head = first != mixers.by_layer.end() &&
                           file.find_tensor(fmt::format(
                               "blk.{}.ssm_in.weight", first - mixers.by_layer.begin())) != nullptr;
  mixers.delta.gates_by_head = !mixers.tensors_by_head;
  return ok_status();
}

}  // namespace headrace
