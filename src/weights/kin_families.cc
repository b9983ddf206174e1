#include "weights/kin_families.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weights/dbrx_family.h"
#include "weights/inkling_family.h"
#include "weights/json_members.h"
#include "weights/latent_families.h"
#include "weights/window_families.h"

namespace headrace {
namespace {

void set_kin_defaults(ModelConfig& config, double theta, int32_t context_length, float eps) {
  config.rope_theta = theta;
  config.context_length = context_length;
  config.rms_eps = eps;
}

// Of a name that may have two values, whether it is the first.
Result<bool> is_first_of(const Json& json, const ConfigSource& source, std::string_view name,
                         std::string_view first, std::string_view second, bool fallback) {
  const Json* const found = said_member(json, name);
  if (found == nullptr) return fallback;
  if (*found == Json(std::string(first))) return true;
  if (*found == Json(std::string(second))) return false;
  return source.unsupported_field(
      name, fmt::format("only \"{}\" and \"{}\" are supported", first, second));
}

// All but each n-th layer slide, of those at the front that are dense with an n of their own; these
// rotate, too, where that is 1.
Status read_cohere2_moe(const Json& json, const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  experts.width = config.ffn;
  HR_ASSIGN_OR_RETURN(config.ffn, count_or(json, source, "prefix_dense_intermediate_size",
                                           config.ffn, 1, kModelLimits.ffn_max));
  config.mixers.rms_norms = said_member(json, "rms_norm_eps") != nullptr;
  HR_ASSIGN_OR_RETURN(const bool softmax,
                      is_first_of(json, source, "expert_selection_fn", "softmax", "sigmoid", true));
  experts.scores = softmax ? ExpertScores::kSoftmax : ExpertScores::kSigmoid;
  if (!softmax) experts.normalised = true;  // where norm_topk_prob does not say
  HR_ASSIGN_OR_RETURN(
      experts.averaged,
      is_first_of(json, source, "shared_expert_combination_strategy", "average", "sum", true));
  HR_ASSIGN_OR_RETURN(const int32_t period,
                      count_or(json, source, "sliding_window_pattern", 4, 1, 1 << 20));
  HR_ASSIGN_OR_RETURN(const int32_t dense_period,
                      count_or(json, source, "prefix_dense_sliding_window_pattern", 1, 1, 1 << 20));
  const Json* const types = said_member(json, "layer_types");
  const Json* const networks = said_member(json, "mlp_layer_types");
  for (int32_t i = 0; i < config.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t behind = i - experts.dense_first;
    bool dense = behind < 0;
    bool slides = dense ? (i + 1) % dense_period != 0 : (behind + 1) % period != 0;
    const auto has = [&](const Json* list) {
      return list != nullptr && list->is_array() && at < list->as_array().size();
    };
    if (has(networks)) dense = networks->as_array()[at] == Json("dense");
    if (has(types)) slides = types->as_array()[at] == Json("sliding_attention");
    config.rope_layers.push_back(slides || (dense && dense_period == 1));
    if (types == nullptr) config.sliding_layers.push_back(slides);
  }
  return ok_status();
}

// A base of the rotation for each layer; 0: it does not rotate.
Status read_granite_swa(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (said_member(json, "layer_types") == nullptr) {
    for (int32_t i = 0; i < config.layers; ++i) config.sliding_layers.push_back(i % 4 != 0);
  }
  constexpr std::string_view kThetas = "layer_rope_theta";
  const Json* const listed = said_member(json, kThetas);
  if (listed == nullptr) return ok_status();
  const auto is_base = [](const Json& theta) {
    return theta.is_number() &&
           (theta.as_double() == 0 || (theta.as_double() >= 1 && theta.as_double() <= 1e12));
  };
  if (!listed->is_array() || std::ssize(listed->as_array()) != config.layers ||
      !std::ranges::all_of(listed->as_array(), is_base)) {
    return source.corrupt_field(
        kThetas, fmt::format("is no list of {} numbers, 0 or from 1 to 1e12", config.layers));
  }
  for (const Json& theta : listed->as_array()) {
    config.mixers.rope_thetas.push_back(theta.as_double());
  }
  return ok_status();
}

// Sizes of heads that follow from others, and whether layers that attend rotate: a base of null is
// none.
Status read_olmo_hybrid(const Json& json, const ConfigSource& source, ModelConfig& config) {
  MixerConfig& mixers = config.mixers;
  if (mixers.key_heads == 0) mixers.key_heads = config.heads;
  if (mixers.value_heads == 0) mixers.value_heads = config.heads;
  if (mixers.key_heads > 0 && mixers.key_dim == 0) {
    mixers.key_dim = static_cast<int32_t>(0.75 * config.hidden / mixers.key_heads);
  }
  if (mixers.value_dim == 0) mixers.value_dim = 2 * mixers.key_dim;
  if (mixers.key_dim < 1 || mixers.value_dim > kModelLimits.head_dim_max) {
    return source.corrupt_field("linear_key_head_dim",
                                fmt::format("{} is no size of a head", mixers.key_dim));
  }
  const Json* const turns = said_member(json, "linear_allow_neg_eigval");
  if (turns != nullptr && *turns == Json(false)) mixers.delta.beta_scale = 1;
  const Json* const rotation = said_member(json, "rope_parameters");
  const Json& holder = rotation != nullptr && rotation->is_object() ? *rotation : json;
  const Json* const theta = holder.find("rope_theta");
  mixers.rotates = theta == nullptr || !theta->is_null();
  return ok_status();
}

// What its numbers say where they are not there.
void finish_minicpm3(ModelConfig& config) {
  if (config.heads == 0) return;  // refused later
  LatentConfig& latent = config.mixers.latent;
  if (latent.value_dim == 0) latent.value_dim = config.hidden / config.heads;
  const float root = std::sqrt(static_cast<float>(config.layers));
  config.residual_scale = config.residual_scale > 0 ? config.residual_scale / root : 1.0f;
  if (config.logit_divisor > 0) {
    config.logit_divisor = static_cast<float>(config.hidden) / config.logit_divisor;
  } else {
    config.logit_divisor = 1;
  }
}

}  // namespace

void apertus_defaults(ModelConfig& config) {
  set_kin_defaults(config, 12e6, 65536, 1e-5f);
  config.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                         .factor = 8,
                         .original_context = 8192,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4};
}
void apertus15_defaults(ModelConfig& config) {
  apertus_defaults(config);
  config.vocab = 266752;
  config.hidden = 4096;
  config.ffn = 14336;
  config.layers = config.heads = 32;
}
void hunyuan_defaults(ModelConfig& config) { set_kin_defaults(config, 1e4, 2048, 1e-5f); }
void hunyuan_moe_defaults(ModelConfig& config) {
  hunyuan_defaults(config);
  config.experts = {.count = 1, .used = 1, .shared_count = 1, .normalised = true};
}
void hyperclova_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 2048, 1e-6f);
  config.embedding_scale = 1;
  config.mixers.post_norms = true;
}
void phi_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e6, 131072, 1e-5f);
  config.kv_heads = 8;
  config.experts = {.count = 16,
                    .used = 2,
                    .tolerance = 0.01f,
                    .normalised = false,
                    .scores = ExpertScores::kSparseMixer};
}
void exaone_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 2048, 1e-5f);
  config.window = 4096;
  config.experts = {.count = 64,
                    .used = 8,
                    .width = 1024,
                    .shared_count = 1,
                    .scale = 2.5f,
                    .normalised = true,
                    .dense_first = 1};
}

void bitnet_defaults(ModelConfig& config) {
  set_kin_defaults(config, 5e5, 2048, 1e-5f);
  config.kv_heads = 5;
}
void afmoe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 16384, 1e-5f);
  config.head_dim = 128;
  config.window = 1024;
  config.experts = {.count = 64,
                    .used = 6,
                    .width = 1408,
                    .shared_count = 2,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void mellum_defaults(ModelConfig& config) {
  set_kin_defaults(config, 5e5, 131072, 1e-6f);
  config.rope_theta_local = 1e4;
  config.head_dim = 128;
  config.window = 1024;
  config.experts = {.count = 64, .used = 8, .width = 896, .normalised = true};
}
void hy_v3_defaults(ModelConfig& config) {
  set_kin_defaults(config, 11158840, 131072, 1e-5f);
  config.kv_heads = 8;
  config.head_dim = 128;
  config.experts = {.count = 192,
                    .used = 8,
                    .width = 1536,
                    .shared_count = 1,
                    .scale = 2.826f,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void cohere2_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 8192, 1e-5f);
  config.head_dim = 128;
  config.window = 4096;
  config.logit_divisor = 0.0625f;
  config.tied_embeddings = true;
  config.qk_rows_interleaved = true;
  config.experts = {.count = 8, .used = 2};
}
void nanochat_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 2048, 1e-6f);
  config.logit_soft_cap = 15;
}
void granite_swa_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 8192, 1e-5f);
  config.attention_scale = 1;
  config.embedding_scale = 1;
  config.window = 128;
  config.tied_embeddings = true;
}
void granite_moe_swa_defaults(ModelConfig& config) {
  granite_swa_defaults(config);
  set_kin_defaults(config, 1e4, 2048, 1e-6f);
  config.tied_embeddings = false;
  config.experts = {.count = 8, .used = 2};
}
void olmo_hybrid_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 65536, 1e-6f);
  config.mixers.conv_taps = 4;
  config.mixers.rate_is_log = true;
  config.mixers.delta.beta_scale = 2;
}
void sarvam_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 8e6, 131072, 1e-6f);
  config.kv_heads = 4;
  config.head_dim = 64;
  config.fused.qkv = true;
  config.mixers.head_norms = true;
  config.experts = {.count = 128,
                    .used = 6,
                    .width = 1024,
                    .shared_count = 1,
                    .scale = 2.5f,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid,
                    .dense_first = 1};
}
void internlm3_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 32768, 1e-5f);
  config.kv_heads = 2;
  config.head_dim = 128;
}
void iquest_coder_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 131072, 1e-5f);
  config.kv_heads = 8;
  config.head_dim = 128;
}
void minicpm3_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 32768, 1e-5f);
  config.mixers.latent = {.rank = 256, .query_rank = 768, .plain_dim = 64, .rope_dim = 32};
  config.embedding_scale = 12;
  config.residual_scale = 1.4f;
  config.logit_divisor = 256;
  config.tied_embeddings = true;
}

Status read_kin(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture == "afmoe") {
    HR_ASSIGN_OR_RETURN(const bool scaled, flag_or(json, source, "mup_enabled", false));
    if (scaled) config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  }
  if (config.architecture == "minicpm3") finish_minicpm3(config);
  if (source.family->hf_classes.front() == kInternLm3Classes.front()) {
    HR_ASSIGN_OR_RETURN(const bool biases, flag_or(json, source, "bias", false));
    config.attention_out_bias = config.ffn_bias = biases;
  }
  HR_RETURN_IF_ERROR(read_longcat(json, source, config));
  HR_RETURN_IF_ERROR(read_inkling(json, source, config));
  HR_RETURN_IF_ERROR(read_windowed(json, source, config));
  HR_RETURN_IF_ERROR(read_dbrx(json, source, config));
  if (config.architecture == "cohere2moe") return read_cohere2_moe(json, source, config);
  if (config.architecture == "olmo-hybrid") return read_olmo_hybrid(json, source, config);
  if (config.architecture == "granite-swa") return read_granite_swa(json, source, config);
  return ok_status();
}

void read_gguf_kin(const GgufFile& file, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  if (config.architecture == "afmoe") {
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
    if (!experts.scores) experts.scores = ExpertScores::kSigmoid;
  }
  if (config.architecture == "hy_v3") {
    if (!experts.scores) experts.scores = ExpertScores::kSigmoid;
    for (int32_t i = 0; i < config.layers; ++i) {
      experts.dense_layers.push_back(!has(fmt::format("blk.{}.ffn_gate_inp.weight", i)));
    }
  }
  if (config.architecture == "cohere2moe") {
    if (!experts.scores) experts.scores = ExpertScores::kSigmoid;
    if (!experts.normalised) experts.normalised = experts.scores == ExpertScores::kSoftmax;
    experts.averaged = true;
    config.mixers.rms_norms = file.find("cohere2moe.attention.layer_norm_rms_epsilon") != nullptr;
    for (int32_t i = 0; i < config.layers; ++i) {
      const bool slides =
          config.sliding_layers.empty() || config.sliding_layers[static_cast<size_t>(i)];
      config.rope_layers.push_back(slides || i < experts.dense_first);
    }
  }
  if (config.architecture == "minicpm3") {
    config.embedding_scale = 12;
    config.residual_scale = 1.4f;
    config.logit_divisor = 256;
    LatentConfig& latent = config.mixers.latent;
    const GgufTensor* const joined = file.find_tensor("blk.0.attn_kv_b.weight");
    if (joined != nullptr && joined->shape.rank() == 2 && config.heads > 0) {
      const int64_t rows = joined->shape[0] / config.heads - (config.head_dim - latent.rope_dim);
      if (rows >= 1 && rows <= kModelLimits.head_dim_max) {
        latent.value_dim = static_cast<int32_t>(rows);
      }
    }
    finish_minicpm3(config);
  }
}

}  // namespace headrace
