#include "weights/gemma_families.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace headrace {
namespace {

void set_gemma_defaults(ModelConfig& config, int32_t context_length) {
  config.rope_theta = 1e6;
  config.rope_theta_local = 1e4;
  config.context_length = context_length;
  config.rms_eps = 1e-6f;
  config.head_dim = 256;
  config.heads = 8;
  config.vocab = 262144;
  config.window = 512;
  config.tied_embeddings = true;
  config.mixers.gemma.input_width = 256;
  config.mixers.gemma.input_vocab = 262144;
}

// A standard normal number that is above this share of all (the inverse of its distribution).
// Acklam's rational approximation, then two steps of Halley's, to a double's last digits.
double normal_quantile(double share) {
  constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                           1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                           6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                           -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                           3.754408661907416e+00};
  constexpr double kLow = 0.02425;
  const auto tail = [&](double p) {
    const double q = std::sqrt(-2 * std::log(p));
    return (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
           ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1);
  };
  double x = 0;
  if (share < kLow) {
    x = tail(share);
  } else if (share > 1 - kLow) {
    x = -tail(1 - share);
  } else {
    const double q = share - 0.5, r = q * q;
    x = (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) * q /
        (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1);
  }
  for (int step = 0; step < 2; ++step) {
    const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - share;
    const double u = error * std::sqrt(2 * 3.14159265358979323846) * std::exp(x * x / 2);
    x -= u / (1 + x * u / 2);
  }
  return x;
}

// What both formats have to hold, once layers are known.
Status check_layered_gemma(const ConfigSource& source, ModelConfig& config) {
  GemmaConfig& gemma = config.mixers.gemma;
  const int32_t own = config.layers - gemma.sharing_layers;
  const std::string sharing = source.name_of(&GemmaConfig::sharing_layers);
  if (gemma.sharing_layers > 0) {
    const auto keeps = [&](bool slides) {
      for (int32_t i = 0; i < own; ++i) {
        if (config.sliding_layers[static_cast<size_t>(i)] == slides) return true;
      }
      return false;
    };
    for (int32_t i = std::max(own, 0); i < config.layers; ++i) {
      if (keeps(config.sliding_layers[static_cast<size_t>(i)])) continue;
      return source.corrupt_field(
          sharing, fmt::format("{} of {} layers: layer {} has none of its kind before them",
                               gemma.sharing_layers, config.layers, i));
    }
  }
  if (gemma.full_head_dim % 2 != 0 ||
      (gemma.full_kv_heads > 0 && config.heads % gemma.full_kv_heads != 0)) {
    return source.corrupt_field(
        source.gguf ? source.name_of(&ModelConfig::kv_heads) : "num_global_key_value_heads",
        fmt::format("{} heads of {} do not share {} key heads", config.heads, gemma.full_head_dim,
                    gemma.full_kv_heads));
  }
  if (gemma.streams > 0 && gemma.active_stream >= gemma.streams) {
    return source.corrupt_field(
        source.name_of(&GemmaConfig::active_stream),
        fmt::format("{} is none of {} streams", gemma.active_stream, gemma.streams));
  }
  if (gemma.streams > 0 && gemma.input_width == 0) {
    return source.corrupt_field(source.name_of(&GemmaConfig::input_width),
                                "0 is no width of what layers read of a token");
  }
  if (!gemma.widths.empty()) config.ffn = *std::ranges::max_element(gemma.widths);
  return ok_status();
}

// Reads what a config.json says of layers.
class GemmaJsonLayers {
 public:
  GemmaJsonLayers(const Json& json, const ConfigSource& source, ModelConfig& config)
      : json_(json), source_(source), config_(config), gemma_(config.mixers.gemma) {}

  Status read() {
    HR_RETURN_IF_ERROR(read_sliding_layers());
    HR_RETURN_IF_ERROR(read_widths());
    if (config_.architecture == "gemma3n") return read_gates();
    gemma_.layer_scales = true;
    HR_RETURN_IF_ERROR(read_full_heads());
    HR_RETURN_IF_ERROR(read_full_rotation());
    return read_experts();
  }

 private:
  const Json* find(std::string_view name) const { return member(json_, name); }
  static const Json* member(const Json& object, std::string_view name) {
    const Json* const found = object.is_object() ? object.find(name) : nullptr;
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  Result<bool> flag(std::string_view name, bool fallback) const {
    const Json* const found = find(name);
    if (found == nullptr) return fallback;
    if (!found->is_bool()) return source_.corrupt_field(name, "is no boolean");
    return found->as_bool();
  }
  Result<int32_t> width(std::string_view name, const Json& value) const {
    if (value.is_int() && value.as_int() >= 1 && value.as_int() <= kModelLimits.ffn_max) {
      return static_cast<int32_t>(value.as_int());
    }
    return source_.corrupt_field(name, "is no width, and no list of widths");
  }

  // The last layer of Gemma 4 does not slide, whatever a file says.
  Status read_sliding_layers() {
    const bool is_4 = config_.architecture == "gemma4";
    const int32_t period = is_4 ? 6 : 5;
    if (config_.window == 0) {
      return source_.unsupported_field("sliding_window", "null is not supported of this class");
    }
    std::vector<bool>& sliding = config_.sliding_layers;
    for (int32_t i = static_cast<int32_t>(sliding.size()); i < config_.layers; ++i) {
      sliding.push_back((i + 1) % period != 0);
    }
    if (is_4 && !sliding.empty()) sliding.back() = false;
    return ok_status();
  }

  Status read_widths() {
    constexpr std::string_view kName = "intermediate_size";
    HR_ASSIGN_OR_RETURN(const bool wide, flag("use_double_wide_mlp", false));
    const Json* const given = find(kName);
    const auto layers = static_cast<size_t>(config_.layers);
    if (given != nullptr && given->is_array()) {
      if (given->as_array().size() != layers) {
        return source_.corrupt_field(
            kName, fmt::format("{} widths for {} layers", given->as_array().size(), layers));
      }
      for (const Json& each : given->as_array()) {
        HR_ASSIGN_OR_RETURN(const int32_t of_layer, width(kName, each));
        gemma_.widths.push_back(of_layer);
      }
      return ok_status();
    }
    if (given != nullptr) {
      HR_ASSIGN_OR_RETURN(config_.ffn, width(kName, *given));
    }
    if (!wide || gemma_.sharing_layers == 0) return ok_status();
    gemma_.widths.assign(layers, config_.ffn);
    for (int32_t i = std::max(config_.layers - gemma_.sharing_layers, 0); i < config_.layers; ++i) {
      gemma_.widths[static_cast<size_t>(i)] *= 2;
    }
    return ok_status();
  }

  // Of Gemma 3n: the share of a network's gates that are 0.
  Status read_gates() {
    HR_ASSIGN_OR_RETURN(gemma_.scales_corrected, flag("altup_correct_scale", true));
    constexpr std::string_view kName = "activation_sparsity_pattern";
    constexpr int32_t kSparseFirst = 10;  // where a file says nothing, of deeper models
    const auto layers = static_cast<size_t>(config_.layers);
    std::vector<double> shares(layers, 0.0);
    const Json* const given = find(kName);
    if (given == nullptr && config_.layers > kSparseFirst) {
      std::fill_n(shares.begin(), kSparseFirst, 0.95);
    }
    if (given != nullptr && (!given->is_array() || given->as_array().size() != layers)) {
      return source_.corrupt_field(kName, fmt::format("is no list of {} numbers", layers));
    }
    for (size_t i = 0; given != nullptr && i < layers; ++i) {
      const Json& share = given->as_array()[i];
      shares[i] = share.is_number() ? share.as_double() : -1;
      if (shares[i] >= 0 && shares[i] < 1) continue;
      return source_.corrupt_field(kName, "has a number that is not from 0 to below 1");
    }
    for (const double share : shares) {
      gemma_.gate_cutoffs.push_back(share > 0 ? static_cast<float>(normal_quantile(share))
                                              : std::numeric_limits<float>::quiet_NaN());
    }
    return ok_status();
  }

  // By names of their own, or in transformers' newer list of what differs by layer.
  Status read_full_heads() {
    HR_ASSIGN_OR_RETURN(gemma_.full_values_are_keys, flag("attention_k_eq_v", false));
    if (!gemma_.full_values_are_keys) gemma_.full_kv_heads = 0;
    constexpr std::string_view kName = "per_layer_config";
    const Json* const by_layer = find(kName);
    if (by_layer == nullptr) return ok_status();
    if (!by_layer->is_object()) return source_.corrupt_field(kName, "is no object");
    std::optional<std::pair<int32_t, int32_t>> all;
    for (int32_t i = 0; i < config_.layers; ++i) {
      const Json* const own = member(*by_layer, std::to_string(i));
      std::pair<int32_t, int32_t> heads{config_.head_dim, config_.kv_heads};
      for (const auto& [name, value] :
           {std::pair<std::string_view, int32_t*>("head_dim", &heads.first),
            {"num_key_value_heads", &heads.second}}) {
        const Json* const given = own == nullptr ? nullptr : member(*own, name);
        if (given == nullptr) continue;
        if (!given->is_int() || given->as_int() < 1 ||
            given->as_int() > kModelLimits.head_dim_max) {
          return source_.corrupt_field(kName, fmt::format("{} of layer {} is no number", name, i));
        }
        *value = static_cast<int32_t>(given->as_int());
      }
      const bool slides = config_.sliding_layers[static_cast<size_t>(i)];
      if (!slides && !all) all = heads;
      if (slides ? heads == std::pair(config_.head_dim, config_.kv_heads) : heads == *all) continue;
      return source_.unsupported_field(
          kName,
          fmt::format("layer {} differs from others of its kind, which is not supported", i));
    }
    if (all) std::tie(gemma_.full_head_dim, gemma_.full_kv_heads) = *all;
    return ok_status();
  }

  // All pairs of a head have a place in the rotation; of a share of them it turns.
  Status read_full_rotation() {
    config_.rope_dim = config_.head_dim;
    const Json* const all = find("rope_parameters");
    if (all == nullptr) gemma_.full_rotated = 0.25;  // what the class assumes
    const Json* const full = all == nullptr ? nullptr : member(*all, "full_attention");
    if (full == nullptr) return ok_status();
    const Json* const type = member(*full, "rope_type");
    const bool proportional = type != nullptr && *type == Json("proportional");
    const Json* const share = member(*full, "partial_rotary_factor");
    gemma_.full_rotated =
        proportional && share != nullptr && share->is_number() ? share->as_double() : 1.0;
    return ok_status();
  }

  Status read_experts() {
    HR_ASSIGN_OR_RETURN(const bool on, flag("enable_moe_block", false));
    if (!on) config_.experts = {};
    return ok_status();
  }

  const Json& json_;
  const ConfigSource& source_;
  ModelConfig& config_;
  GemmaConfig& gemma_;
};

// A list of a GGUF file, one number a layer.
Result<std::vector<int32_t>> layer_numbers(const GgufFile& file, const std::string& name,
                                           const GgufArray& list, int32_t layers, int32_t max) {
  std::vector<int32_t> numbers;
  for (size_t i = 0; i < std::min(list.size(), static_cast<size_t>(layers)); ++i) {
    const auto value = list.int_at(i);
    if (!value || *value < 1 || *value > max) {
      return file.corrupt_field(name, fmt::format("is no list of numbers from 1 to {}", max));
    }
    numbers.push_back(static_cast<int32_t>(*value));
  }
  if (std::ssize(numbers) == layers) return numbers;
  return file.corrupt_field(name, fmt::format("{} numbers for {} layers", numbers.size(), layers));
}

// Reads what a GGUF file says of layers.
class GemmaGgufLayers {
 public:
  GemmaGgufLayers(const GgufFile& file, const ConfigSource& source, ModelConfig& config)
      : file_(file), source_(source), config_(config), gemma_(config.mixers.gemma) {}

  Status read() {
    if (std::ssize(config_.sliding_layers) != config_.layers) {
      return file_.corrupt_field(key("attention.sliding_window_pattern"),
                                 "is no list of flags, one a layer");
    }
    HR_RETURN_IF_ERROR(read_widths());
    HR_RETURN_IF_ERROR(read_input_table());
    if (config_.architecture == "gemma3n") return read_streams();
    gemma_.layer_scales = file_.find_tensor("blk.0.layer_output_scale.weight") != nullptr;
    gemma_.experts_fused = file_.find_tensor("blk.0.ffn_gate_up_exps.weight") != nullptr;
    HR_RETURN_IF_ERROR(read_key_heads());
    return read_head_sizes();
  }

 private:
  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", config_.architecture, name);
  }
  const GgufArray* list(const std::string& name) const {
    const GgufEntry* const entry = file_.find(name);
    return entry == nullptr ? nullptr : std::get_if<GgufArray>(&entry->value);
  }

  Status read_widths() {
    const std::string name = key("feed_forward_length");
    const GgufArray* const widths = list(name);
    if (widths == nullptr) return ok_status();
    HR_ASSIGN_OR_RETURN(gemma_.widths,
                        layer_numbers(file_, name, *widths, config_.layers, kModelLimits.ffn_max));
    return ok_status();
  }

  Status read_input_table() {
    const GgufTensor* const table = file_.find_tensor("per_layer_token_embd.weight");
    if (gemma_.input_width == 0 || table == nullptr || table->shape.rank() != 2) return ok_status();
    gemma_.input_vocab =
        static_cast<int32_t>(std::clamp<int64_t>(table->shape[0], 1, kModelLimits.vocab_max));
    return ok_status();
  }

  Status read_streams() {
    gemma_.streams_stacked = true;
    if (config_.logit_soft_cap == 0) config_.logit_soft_cap = 30;  // where a file does not say it
    const GgufTensor* const laurel = file_.find_tensor("blk.0.laurel_l.weight");
    if (laurel == nullptr || laurel->shape.rank() != 2 || laurel->shape[0] > config_.hidden) {
      return file_.corrupt_field("tensor blk.0.laurel_l.weight", "missing, or of another form");
    }
    gemma_.laurel_rank = static_cast<int32_t>(laurel->shape[0]);
    const std::string name = key("activation_sparsity_scale");
    const GgufArray* const cutoffs = list(name);
    if (cutoffs == nullptr) return ok_status();
    const auto layers = static_cast<size_t>(config_.layers);
    for (size_t i = 0; i < std::min(cutoffs->size(), layers); ++i) {
      const double cutoff = cutoffs->float_at(i).value_or(0);
      gemma_.gate_cutoffs.push_back(std::isfinite(cutoff)
                                        ? static_cast<float>(cutoff)
                                        : std::numeric_limits<float>::quiet_NaN());
    }
    if (gemma_.gate_cutoffs.size() == layers) return ok_status();
    return file_.corrupt_field(name,
                               fmt::format("{} numbers for {} layers", cutoffs->size(), layers));
  }

  // A number of key heads for all layers, or a list.
  Status read_key_heads() {
    const std::string name = key("attention.head_count_kv");
    const GgufArray* const heads = list(name);
    if (heads != nullptr) {
      HR_ASSIGN_OR_RETURN(
          const std::vector<int32_t> of_layers,
          layer_numbers(file_, name, *heads, config_.layers, kModelLimits.heads_max));
      int32_t sliding = 0;
      for (size_t i = 0; i < of_layers.size(); ++i) {
        int32_t& kind = config_.sliding_layers[i] ? sliding : gemma_.full_kv_heads;
        if (kind == 0) kind = of_layers[i];
        if (kind == of_layers[i]) continue;
        return file_.unsupported_field(name, "layers of one kind have different numbers of heads");
      }
      config_.kv_heads = sliding > 0 ? sliding : gemma_.full_kv_heads;
    }
    // A layer without a tensor of values makes them of keys' rows.
    for (int32_t i = 0; i < config_.layers - gemma_.sharing_layers; ++i) {
      if (config_.sliding_layers[static_cast<size_t>(i)]) continue;
      gemma_.full_values_are_keys =
          file_.find_tensor(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
      break;
    }
    return ok_status();
  }

  Status read_head_sizes() {
    gemma_.full_head_dim = config_.head_dim;
    gemma_.full_rotated = 1;  // rope_freqs.weight says it
    for (const auto& [name, value] : {std::pair("attention.key_length_swa", &config_.head_dim),
                                      {"rope.dimension_count_swa", &config_.rope_dim}}) {
      HR_ASSIGN_OR_RETURN(const int64_t size, file_.require_int(key(name)));
      if (size < 2 || size > kModelLimits.head_dim_max) {
        return file_.corrupt_field(key(name), fmt::format("{} is no size of a head", size));
      }
      *value = static_cast<int32_t>(size);
    }
    return ok_status();
  }

  const GgufFile& file_;
  const ConfigSource& source_;
  ModelConfig& config_;
  GemmaConfig& gemma_;
};

}  // namespace

bool has_list_by_layer(const Json& json, std::string_view architecture, const ConfigField& field) {
  const Json* const given = json.find(field.hf);
  return given != nullptr && given->is_array() && is_listed_by_layer(architecture, field.member);
}

bool sees_both_ways_in_images_alone(const Json& json, std::string_view key) {
  const Json* const given = json.find(key);
  return key == "use_bidirectional_attention" && given != nullptr && *given == Json("vision");
}

void gemma3n_defaults(ModelConfig& config) {
  set_gemma_defaults(config, 32768);
  config.vocab = 262400;
  config.hidden = 2048;
  config.ffn = 16384;
  config.layers = 35;
  config.kv_heads = 2;
  config.logit_soft_cap = 30;
  config.mixers.gemma.sharing_layers = 15;
  config.mixers.gemma.streams = 4;
  config.mixers.gemma.laurel_rank = 64;
}
void gemma4_defaults(ModelConfig& config) {
  set_gemma_defaults(config, 131072);
  config.hidden = 2304;
  config.ffn = 9216;
  config.layers = 30;
  config.kv_heads = 4;
  config.mixers.gemma.full_head_dim = 512;
}

void gemma4_unified_defaults(ModelConfig& config) {
  gemma4_defaults(config);
  config.context_length = 262144;
  config.window = 1024;
  config.mixers.gemma.input_width = config.mixers.gemma.input_vocab = 0;
}

Status read_layered_gemma(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (!is_layered_gemma(config.architecture)) return ok_status();
  HR_RETURN_IF_ERROR(GemmaJsonLayers(json, source, config).read());
  return check_layered_gemma(source, config);
}

Status read_gguf_layered_gemma(const GgufFile& file, const ConfigSource& source,
                               ModelConfig& config) {
  HR_RETURN_IF_ERROR(GemmaGgufLayers(file, source, config).read());
  return check_layered_gemma(source, config);
}

}  // namespace headrace
