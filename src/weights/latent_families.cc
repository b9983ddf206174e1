#include "weights/latent_families.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

// Of the layers from `first` on each n-th has an index of its own, and all before it.
void share_all_but_each(int32_t period, int32_t first, ModelConfig& config) {
  std::vector<bool>& shared = config.mixers.latent.index_shared;
  shared.clear();
  for (int32_t i = 0; i < config.layers; ++i) {
    shared.push_back(std::max(i - first + 1, 0) % std::max(period, 1) != 0);
  }
}

// "full" or "shared" a layer, or a letter of each.
Status read_index_types(const Json& types, std::string_view name, const ConfigSource& source,
                        ModelConfig& config) {
  std::vector<bool>& shared = config.mixers.latent.index_shared;
  const auto add = [&](std::string_view type) -> Status {
    const bool is_shared = type == "shared" || type == "S";
    if (!is_shared && type != "full" && type != "F") {
      return source.unsupported_field(
          name, fmt::format("\"{}\" is not supported (known: full, shared)", printable(type)));
    }
    shared.push_back(is_shared);
    return ok_status();
  };
  if (types.is_string()) {
    for (const char& letter : types.as_string()) {
      HR_RETURN_IF_ERROR(add(std::string_view(&letter, 1)));
    }
  } else if (types.is_array()) {
    for (const Json& type : types.as_array()) {
      HR_RETURN_IF_ERROR(add(type.is_string() ? std::string_view(type.as_string()) : ""));
    }
  }
  if (std::ssize(shared) == config.layers) return ok_status();
  return source.corrupt_field(name, fmt::format("is no list of {} names", config.layers));
}

// What an index stands on.
Status check_index(const ConfigSource& source, ModelConfig& config) {
  LatentConfig& latent = config.mixers.latent;
  if (latent.query_rank == 0) {
    return source.unsupported_field(source.name_of(&LatentConfig::query_rank),
                                    "an index of keys needs queries of a latent");
  }
  if (latent.index_dim < latent.rope_dim) {
    return source.corrupt_field(
        source.name_of(&LatentConfig::index_dim),
        fmt::format("{} is less than the {} that rotate", latent.index_dim, latent.rope_dim));
  }
  if (!latent.index_shared.empty() && latent.index_shared.front()) {
    return source.corrupt_field(
        source.gguf ? fmt::format("{}.attention.indexer.types", source.family->architecture)
                    : "indexer_types",
        "the first layer has no index, and none before it has one");
  }
  if (std::ranges::find(latent.index_shared, true) == latent.index_shared.end()) {
    latent.index_shared.clear();
  }
  return ok_status();
}

}  // namespace

void deepseek2_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 2048;
  config.rms_eps = 1e-6f;
  config.qk_rows_interleaved = true;
  config.mixers.latent = {
      .rank = 512, .query_rank = 1536, .plain_dim = 128, .rope_dim = 64, .value_dim = 128};
  config.experts = {.count = 64,
                    .used = 6,
                    .width = 1407,
                    .shared_count = 2,
                    .normalised = false,
                    .scores = ExpertScores::kSoftmax};
}
void deepseek3_defaults(ModelConfig& config) {
  deepseek2_defaults(config);
  config.context_length = 4096;
  config.experts = {.count = 256,
                    .used = 8,
                    .width = 2048,
                    .shared_count = 1,
                    .scale = 2.5f,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .groups = 8,
                    .groups_used = 4,
                    .dense_first = 3};
}
void glm4_moe_lite_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 202752;
  config.rms_eps = 1e-5f;
  config.mixers.latent = {
      .rank = 512, .query_rank = 768, .plain_dim = 192, .rope_dim = 64, .value_dim = 256};
  config.experts = {.count = 64,
                    .used = 4,
                    .width = 1536,
                    .shared_count = 1,
                    .scale = 1.8f,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void axk1_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 32768;
  config.experts.count = 192;
  config.experts.dense_first = 1;
}
void axk2_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 131072;
  config.mixers.latent = {.rank = 128,
                          .query_rank = 384,
                          .plain_dim = 64,
                          .rope_dim = 32,
                          .value_dim = 64,
                          .index_heads = 16,
                          .index_dim = 128,
                          .index_top = 2048,
                          .norm_gate_rank = 16};
  ExpertConfig& experts = config.experts;
  experts.count = 128;
  experts.width = 512;
  experts.groups = experts.groups_used = experts.dense_first = 1;
}
void mistral4_defaults(ModelConfig& config) {
  deepseek2_defaults(config);
  config.context_length = 1048576;
  config.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                         .factor = 128,
                         .original_context = 8192,
                         .mscale = 1,
                         .mscale_all_dim = 1};
  config.mixers.temperature = {.scale = 0.1f, .step = 8192};
  config.mixers.latent = {
      .rank = 256, .query_rank = 1024, .plain_dim = 64, .rope_dim = 64, .value_dim = 128};
  config.experts = {.count = 128,
                    .used = 4,
                    .width = 2048,
                    .shared_count = 1,
                    .normalised = true,
                    .scores = ExpertScores::kSoftmax};
}
void sarvam_mla_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.mixers.latent.query_rank = 0;
  ExpertConfig& experts = config.experts;
  experts.count = 128;
  experts.groups = experts.groups_used = experts.dense_first = 1;
}
void longcat_defaults(ModelConfig& config) {
  deepseek2_defaults(config);
  config.rope_theta = 1e7;
  config.context_length = 131072;
  config.rms_eps = 1e-5f;
  config.ffn = 12288;
  config.experts = {.count = 512,
                    .used = 12,
                    .width = 2048,
                    .identities = 256,
                    .scale = 6,
                    .normalised = false,
                    .scores = ExpertScores::kSoftmax,
                    .on_shortcut = true};
}
void hy_v4_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 262144;
  config.rms_eps = 1e-5f;
  config.qk_rows_interleaved = false;
  config.mixers.latent = {.rank = 512,
                          .query_rank = 1536,
                          .plain_dim = 192,
                          .rope_dim = 64,
                          .value_dim = 256,
                          .index_heads = 16,
                          .index_dim = 128,
                          .index_top = 2048};
  config.mixers.gemma.streams = 4;
  config.mixers.gemma.hyper_magnitude = 2;
  config.mixers.gemma.hyper_eps = 1e-6f;
  ExpertConfig& experts = config.experts;
  experts.width = 768;
  experts.scale = 2.827f;
  experts.groups = experts.groups_used = 1;
  experts.dense_first = 1;
  experts.gate_limit = 10;
}
void youtu_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 131072;
  config.tied_embeddings = true;
  config.experts = {};
}
void deepseek32_defaults(ModelConfig& config) {
  deepseek3_defaults(config);
  config.context_length = 163840;
  LatentConfig& latent = config.mixers.latent;
  latent.index_heads = 64;
  latent.index_dim = 128;
  latent.index_top = 2048;
}
void glm_dsa_defaults(ModelConfig& config) {
  deepseek32_defaults(config);
  config.context_length = 202752;
  config.rms_eps = 1e-5f;
  LatentConfig& latent = config.mixers.latent;
  latent.query_rank = 2048;
  latent.plain_dim = 192;
  latent.value_dim = 256;
  latent.index_heads = 32;
  latent.index_interleaved = true;
  config.experts.groups = config.experts.groups_used = 1;
}

namespace {

Status read_key_index(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.mixers.latent.index_heads == 0) return ok_status();
  // GLM-5's and Hunyuan V4's alone share.
  const bool hy_v4 = config.architecture == "hy_v4";
  if (config.mixers.latent.index_interleaved || hy_v4) {
    const std::string_view name =
        said_member(json, "indexer_types") != nullptr ? "indexer_types" : "index_topk_pattern";
    if (const Json* const types = said_member(json, name)) {
      HR_RETURN_IF_ERROR(read_index_types(*types, name, source, config));
    } else {
      HR_ASSIGN_OR_RETURN(
          const int32_t period,
          count_or(json, source, "index_topk_freq", hy_v4 ? 4 : 1, 0, kModelLimits.layers_max));
      HR_ASSIGN_OR_RETURN(const int32_t first, count_or(json, source, "index_skip_topk_offset", 2,
                                                        0, kModelLimits.layers_max));
      share_all_but_each(period, first, config);
    }
  }
  return check_index(source, config);
}

}  // namespace

Status read_longcat(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "longcat-flash") return ok_status();
  // The library counts halves of layers, of which a file may have the number beside its own.
  constexpr int32_t kLayersMax = kModelLimits.layers_max / 3;
  const bool halved = said_member(json, "num_layers") == nullptr;
  if (halved) config.layers /= 2;
  if (halved && (config.layers < 1 || config.layers > kLayersMax)) {
    return source.corrupt_field(
        "num_hidden_layers",
        fmt::format("is not of 1 to {} layers of two halves: say num_layers", kLayersMax));
  }
  HR_ASSIGN_OR_RETURN(config.layers,
                      count_or(json, source, "num_layers", config.layers, 1, kLayersMax));
  const Json* const identities = said_member(json, "zero_expert_type");
  if (identities != nullptr && *identities != Json("identity")) {
    return source.unsupported_field("zero_expert_type",
                                    "is not supported, only \"identity\" or none");
  }
  for (const auto& [name, known] :
       {std::pair("router_bias", false), {"mla_scale_q_lora", true}, {"mla_scale_kv_lora", true}}) {
    HR_ASSIGN_OR_RETURN(const bool said, flag_or(json, source, name, known));
    if (said == known) continue;
    return source.unsupported_field(name, fmt::format("is not supported, only {} or none", known));
  }
  return ok_status();
}

Status read_latent(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.mixers.latent.rank == 0) return ok_status();
  ExpertConfig& experts = config.experts;
  const bool is_v2 = config.architecture == "deepseek2" && experts.scores == ExpertScores::kSoftmax;
  // DeepSeek V2's class knows one order of rows, and does not divide weights by their sum.
  // Nor do the classes of Ling 3, Hunyuan V4, LongCat-Flash and A.X-K2, which do not read it.
  constexpr std::array kOfOneOrder = {"bailingmoe3", "hy_v4", "longcat-flash", "axk2"};
  const bool reads_it =
      std::ranges::find(kOfOneOrder, config.architecture) == std::end(kOfOneOrder);
  if (!is_v2 && reads_it) {
    HR_ASSIGN_OR_RETURN(config.qk_rows_interleaved,
                        flag_or(json, source, "rope_interleave", config.qk_rows_interleaved));
  } else if (is_v2 && experts.normalised.value_or(false)) {
    return source.unsupported_field("norm_topk_prob", "true is not supported of DeepSeek V2");
  }
  HR_ASSIGN_OR_RETURN(const int32_t period,
                      count_or(json, source, "moe_layer_freq", 1, 0, kModelLimits.layers_max));
  if (period != 1) {
    return source.unsupported_field("moe_layer_freq",
                                    fmt::format("{} is not supported, only 1", period));
  }
  const Json* const method = said_member(json, "topk_method");
  const bool by_groups = method != nullptr && *method == Json("group_limited_greedy");
  if (by_groups && experts.groups > 1) {
    return source.unsupported_field("topk_method",
                                    "groups by their best expert (DeepSeek V2) are not supported");
  }
  if (is_v2) experts.groups = experts.groups_used = 1;
  return read_key_index(json, source, config);
}

Status read_gguf_key_index(const GgufFile& file, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kOfGlm = "glm-dsa";
  LatentConfig& latent = config.mixers.latent;
  if (config.architecture != kOfGlm && config.architecture != "deepseek32") return ok_status();
  if (latent.index_heads == 0 || latent.index_dim == 0 || latent.index_top == 0) {
    return source.corrupt_field(source.name_of(&LatentConfig::index_heads),
                                "or key_length or top_k beside it is missing");
  }
  latent.index_interleaved = config.architecture == kOfGlm;
  if (!latent.index_interleaved) return check_index(source, config);
  const std::string name = fmt::format("{}.attention.indexer.types", config.architecture);
  HR_ASSIGN_OR_RETURN(const auto types, file.optional_array(name));
  if (types) {
    for (size_t i = 0; i < types->size() && std::ssize(latent.index_shared) < config.layers; ++i) {
      const auto full = types->int_at(i);
      if (!full) return file.corrupt_field(name, "is no list of flags, one a layer");
      latent.index_shared.push_back(*full == 0);
    }
    if (std::ssize(latent.index_shared) < config.layers) {
      return file.corrupt_field(
          name, fmt::format("{} flags for {} layers", types->size(), config.layers));
    }
  } else {
    // What llama.cpp takes for granted of GLM-5.2, the first that shares, and of those before it.
    constexpr int32_t kContextOf52 = 1048576, kPeriodOf52 = 4, kFirstOf52 = 3;
    share_all_but_each(config.context_length < kContextOf52 ? 1 : kPeriodOf52, kFirstOf52, config);
  }
  return check_index(source, config);
}

}  // namespace headrace
