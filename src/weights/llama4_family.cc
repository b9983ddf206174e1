#include "weights/llama4_family.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr double kTemperatureMax = 1e6;

const Json* member_of(const Json& object, std::string_view name) {
  const Json* const found = object.is_object() ? object.find(name) : nullptr;
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<int32_t> whole_or(const Json& json, const ConfigSource& source, std::string_view name,
                         int32_t fallback, int32_t max) {
  const Json* const found = member_of(json, name);
  if (found == nullptr) return fallback;
  if (found->is_int() && found->as_int() >= 1 && found->as_int() <= max) {
    return static_cast<int32_t>(found->as_int());
  }
  return source.corrupt_field(name, fmt::format("is no number from 1 to {}", max));
}

Result<double> scale_or(const Json& json, const ConfigSource& source, std::string_view name,
                        double fallback) {
  const Json* const found = member_of(json, name);
  if (found == nullptr) return fallback;
  if (found->is_number() && std::abs(found->as_double()) <= kTemperatureMax) {
    return found->as_double();
  }
  return source.corrupt_field(name, fmt::format("is no number up to {:.0f}", kTemperatureMax));
}

// Networks that are as wide as experts, or wider, and the layers that have experts.
Status read_llama4_networks(const Json& json, const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  experts.width = experts.shared_width = config.ffn;
  HR_ASSIGN_OR_RETURN(config.ffn,
                      whole_or(json, source, "intermediate_size_mlp", 16384, kModelLimits.ffn_max));
  HR_ASSIGN_OR_RETURN(const int32_t step, whole_or(json, source, "interleave_moe_layer_step", 1,
                                                   kModelLimits.layers_max));
  experts.dense_layers.assign(static_cast<size_t>(config.layers), false);
  for (int32_t i = 0; i < config.layers; ++i) {
    experts.dense_layers[static_cast<size_t>(i)] = (i + 1) % step != 0;
  }
  constexpr std::string_view kList = "moe_layers";
  const Json* const list = member_of(json, kList);
  if (list == nullptr) return ok_status();
  if (!list->is_array()) return source.corrupt_field(kList, "is no list of layers");
  experts.dense_layers.assign(static_cast<size_t>(config.layers), true);
  for (const Json& layer : list->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= config.layers) {
      return source.corrupt_field(kList,
                                  fmt::format("has what is none of {} layers", config.layers));
    }
    experts.dense_layers[static_cast<size_t>(layer.as_int())] = false;
  }
  return ok_status();
}

// Layers that rotate see a chunk, where the file does not name them.
Status read_llama4_chunks(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kSize = "attention_chunk_size", kTypes = "layer_types";
  const bool none = json.find(kSize) != nullptr && json.find(kSize)->is_null();
  HR_ASSIGN_OR_RETURN(const int32_t size,
                      whole_or(json, source, kSize, 8192, kModelLimits.context_length_max));
  if (config.rope_layers.empty()) {
    for (int32_t i = 0; i < config.layers; ++i) config.rope_layers.push_back((i + 1) % 4 != 0);
  }
  config.sliding_layers.assign(config.rope_layers.begin(), config.rope_layers.end());
  if (const Json* const types = member_of(json, kTypes)) {
    if (!types->is_array() || std::ssize(types->as_array()) != config.layers) {
      return source.corrupt_field(kTypes, fmt::format("is no list of {} names", config.layers));
    }
    for (size_t i = 0; i < types->as_array().size(); ++i) {
      const Json& type = types->as_array()[i];
      config.sliding_layers[i] = type == Json("chunked_attention");
      if (config.sliding_layers[i] || type == Json("full_attention")) continue;
      return source.unsupported_field(
          kTypes, "has a layer that is not supported (known: full_attention, chunked_attention)");
    }
  }
  if (none) config.sliding_layers.assign(static_cast<size_t>(config.layers), false);
  config.window = size;
  config.mixers.chunks = true;
  return ok_status();
}

}  // namespace

void llama4_defaults(ModelConfig& config) {
  config.rope_theta = 5e5;
  config.context_length = 131072;
  config.rms_eps = 1e-5f;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.qk_rows_interleaved = true;
  config.mixers.head_norms = true;
  config.experts = {.count = 16, .used = 1, .normalised = false, .scores = ExpertScores::kSigmoid};
}

std::string class_of_text(const std::string& hf_class, const Json& config, const Json* text) {
  // The library writes Sarvam's files with the class that computes them.
  const Json* const own = member_of(config, "model_type");
  if (hf_class == "Glm4MoeForCausalLM" && own != nullptr && *own == Json("sarvam_moe")) {
    return "SarvamMoEForCausalLM";
  }
  const bool wraps = hf_class == "Mistral3ForConditionalGeneration" && text != nullptr;
  const Json* const type = wraps ? member_of(*text, "model_type") : nullptr;
  return type != nullptr && *type == Json("mistral4") ? "Mistral4ForCausalLM" : hf_class;
}

void ministral3_defaults(ModelConfig& config) {
  config.rope_theta = 1e6;
  config.context_length = 262144;
  config.rms_eps = 1e-5f;
  config.kv_heads = 8;
  config.head_dim = 128;
}

namespace {

Status read_llama4(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(read_llama4_networks(json, source, config));
  HR_RETURN_IF_ERROR(read_llama4_chunks(json, source, config));
  const Json* const tuned = member_of(json, "attn_temperature_tuning");
  TemperatureConfig& temperature = config.mixers.temperature;
  HR_ASSIGN_OR_RETURN(temperature.step,
                      whole_or(json, source, "floor_scale", 8192, kModelLimits.context_length_max));
  HR_ASSIGN_OR_RETURN(const double scale, scale_or(json, source, "attn_scale", 0.1));
  temperature.offset = 1;
  // A number in the first files.
  const bool off = tuned != nullptr && (*tuned == Json(false) || *tuned == Json(0));
  temperature.scale = off ? 0.0f : static_cast<float>(scale);
  return ok_status();
}

Status read_ministral3(const Json& json, const ConfigSource& source, ModelConfig& config) {
  const Json* rope = member_of(json, "rope_parameters");
  if (rope == nullptr) rope = member_of(json, "rope_scaling");  // as transformers 4 called it
  if (rope == nullptr) return ok_status();
  TemperatureConfig& temperature = config.mixers.temperature;
  HR_ASSIGN_OR_RETURN(const double scale, scale_or(*rope, source, "llama_4_scaling_beta", 0));
  HR_ASSIGN_OR_RETURN(temperature.step,
                      whole_or(*rope, source, "original_max_position_embeddings",
                               config.context_length, kModelLimits.context_length_max));
  temperature.scale = static_cast<float>(scale);
  return ok_status();
}

}  // namespace

Status read_tuned_queries(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture == "llama4") return read_llama4(json, source, config);
  if (config.architecture == "mistral3" || config.architecture == "mistral4") {
    return read_ministral3(json, source, config);
  }
  return ok_status();
}

namespace {

// What llama.cpp takes for granted of all of these files.
Status read_gguf_llama4(const GgufFile& file, ModelConfig& config) {
  constexpr int32_t kChunk = 8192, kPeriod = 4, kUnnormedExperts = 128;
  HR_ASSIGN_OR_RETURN(const int64_t step, file.require_int("llama4.interleave_moe_layer_step"));
  HR_ASSIGN_OR_RETURN(const auto window, file.optional_int("llama4.attention.sliding_window"));
  const bool all_alike = window.value_or(1) == 0;
  if (step < 0 || step > kModelLimits.layers_max) {
    return file.corrupt_field("llama4.interleave_moe_layer_step",
                              fmt::format("{} is outside 0 to {}", step, kModelLimits.layers_max));
  }
  ExpertConfig& experts = config.experts;
  experts.shared_width = experts.width;
  experts.scores = ExpertScores::kSigmoid;
  experts.normalised = false;
  for (int32_t i = 0; i < config.layers; ++i) {
    experts.dense_layers.push_back(step == 0 || (i + 1) % step != 0);
    config.rope_layers.push_back(all_alike || (i + 1) % kPeriod != 0);
    config.sliding_layers.push_back(!all_alike && config.rope_layers.back());
  }
  config.window = kChunk;
  config.mixers.chunks = true;
  config.mixers.head_norms = experts.count != kUnnormedExperts;
  config.mixers.temperature = {.scale = 0.1f, .step = kChunk, .offset = 1};
  return ok_status();
}

Status read_gguf_temperature(const GgufFile& file, ModelConfig& config) {
  HR_ASSIGN_OR_RETURN(const auto scale,
                      file.optional_float(config.architecture + ".attention.temperature_scale"));
  config.mixers.temperature = {.scale = static_cast<float>(scale.value_or(0)),
                               .step = config.rope_scaling.original_context};
  return ok_status();
}

Status read_gguf_ministral3(const GgufFile& file, ModelConfig& config) {
  HR_RETURN_IF_ERROR(read_gguf_temperature(file, config));
  HR_ASSIGN_OR_RETURN(const auto multiplier,
                      file.optional_float("mistral3.rope.scaling.yarn_log_multiplier"));
  config.rope_scaling.mscale = config.rope_scaling.mscale_all_dim = multiplier.value_or(0);
  return ok_status();
}

}  // namespace

Status read_gguf_tuned_queries(const GgufFile& file, ModelConfig& config) {
  if (config.architecture == "llama4") return read_gguf_llama4(file, config);
  if (config.architecture == "mistral3") return read_gguf_ministral3(file, config);
  if (config.architecture == "mistral4") return read_gguf_temperature(file, config);
  return ok_status();
}

}  // namespace headrace
