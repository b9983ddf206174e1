#include "weights/mamba_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weights/json_members.h"

namespace headrace {
namespace {

// A member that is there and not null.
const Json* given_in(const Json& json, std::string_view name) {
  const Json* member = json.find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

// A number as transformers writes it: an infinity is {"__float__": "Infinity"}, or null here, where
// the file has it as Python writes it (without_infinities).
std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.as_double();
  const Json* name = json.is_object() ? json.find("__float__") : nullptr;
  const bool infinite = json.is_null() || (name != nullptr && *name == Json("Infinity"));
  return infinite ? std::optional(std::numeric_limits<double>::infinity()) : std::nullopt;
}

// Reads what a config.json of these families says beside its numbers.
class StateSpaceReader {
 public:
  StateSpaceReader(const Json& json, const ConfigSource& source, ModelConfig& config)
      : json_(json), source_(source), config_(config), space_(config.mixers.state_space) {}

  Status read() {
    HR_RETURN_IF_ERROR(check_activation("mamba_hidden_act", "silu"));
    HR_RETURN_IF_ERROR(read_limits());
    HR_RETURN_IF_ERROR(read_head_dim());
    const std::string_view name = config_.architecture;
    if (name == "mamba") return read_mamba();
    if (name == "mamba2") return read_mamba2();
    if (name == "zamba2") return read_zamba2();
    HR_RETURN_IF_ERROR(read_flag("mamba_conv_bias", space_.conv_bias));
    HR_RETURN_IF_ERROR(read_flag("mamba_proj_bias", space_.in_bias));
    if (name == "jamba") return read_jamba();
    if (name == "bamba") return read_bamba();
    if (name == "granitehybrid") return read_granite();
    if (name == "falcon-h1") return read_falcon();
    return read_nemotron();
  }

 private:
  Status read_flag(std::string_view name, bool& flag) const {
    const Json* member = given_in(json_, name);
    if (member == nullptr) return ok_status();
    if (!member->is_bool()) {
      return source_.corrupt_field(name,
                                   fmt::format("is {}, expected a boolean", member->type_name()));
    }
    flag = member->as_bool();
    return ok_status();
  }
  Status require(std::string_view name, bool only) const {
    bool flag = only;
    HR_RETURN_IF_ERROR(read_flag(name, flag));
    if (flag == only) return ok_status();
    return source_.unsupported_field(name, fmt::format("{} is not supported, only {}", flag, only));
  }
  Status check_activation(std::string_view name, std::string_view only) const {
    const Json* member = given_in(json_, name);
    if (member == nullptr || *member == Json(only)) return ok_status();
    return source_.unsupported_field(name, fmt::format("only \"{}\" is supported", only));
  }

  Status read_number(std::string_view name, float& number) const {
    const Json* member = given_in(json_, name);
    return member == nullptr ? ok_status() : set_number(name, *member, number);
  }
  Status set_number(std::string_view name, const Json& json, float& number) const {
    const std::optional<double> value = number_of(json);
    if (!value || !(std::abs(*value) <= state_space_fields::kScaleMax)) {
      return source_.corrupt_field(name, "is no number between -1e6 and 1e6");
    }
    number = static_cast<float>(*value);
    return ok_status();
  }
  // A list of as many numbers.
  Status read_numbers(std::string_view name, std::span<float> numbers) const {
    const Json* list = given_in(json_, name);
    if (list == nullptr) return ok_status();
    if (!list->is_array() || list->as_array().size() != numbers.size()) {
      return source_.corrupt_field(name, fmt::format("is no list of {} numbers", numbers.size()));
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      HR_RETURN_IF_ERROR(set_number(name, list->as_array()[i], numbers[i]));
    }
    return ok_status();
  }

  // What a time step may be at least and at most.
  Status read_limits() const {
    constexpr std::string_view kLimits = "time_step_limit";
    const Json* list = given_in(json_, kLimits);
    if (list == nullptr) return ok_status();
    const bool pair = list->is_array() && list->as_array().size() == 2;
    const auto low = pair ? number_of(list->as_array()[0]) : std::nullopt;
    const auto high = pair ? number_of(list->as_array()[1]) : std::nullopt;
    if (!low || !high || !(*low >= 0 && *low <= *high)) {
      return source_.corrupt_field(kLimits, "is no pair of a least and a largest time step");
    }
    space_.dt_min = static_cast<float>(*low);
    space_.dt_max = static_cast<float>(*high);
    return ok_status();
  }

  // A number, or "auto": what the width of x leaves.
  Status read_head_dim() const {
    constexpr std::string_view kName = "mamba_d_head";
    const Json* member = given_in(json_, kName);
    if (member == nullptr || *member == Json("auto")) return ok_status();
    if (!member->is_int() || member->as_int() < 1 || member->as_int() > kModelLimits.head_dim_max) {
      return source_.corrupt_field(
          kName, fmt::format("is neither \"auto\" nor 1 to {}", kModelLimits.head_dim_max));
    }
    space_.head_dim = static_cast<int32_t>(member->as_int());
    return ok_status();
  }
  // The width of x as so many times that of rows.
  Status read_expansion(std::string_view name, float assumed) const {
    float factor = assumed;
    HR_RETURN_IF_ERROR(read_number(name, factor));
    const double inner = std::floor(double{factor} * config_.hidden);
    if (!(inner >= 1 && inner <= kModelLimits.ffn_max)) {
      return source_.corrupt_field(name,
                                   fmt::format("{} times the hidden size is no width", factor));
    }
    space_.inner = static_cast<int32_t>(inner);
    return ok_status();
  }

  void set_all_layers(LayerMixer mixer) const {
    config_.mixers.by_layer.assign(static_cast<size_t>(config_.layers), mixer);
  }

  // The rank of time steps: a number, or "auto".
  Status read_dt_rank(std::string_view name) const {
    const Json* member = given_in(json_, name);
    space_.dt_rank = (config_.hidden + 15) / 16;
    if (member == nullptr || *member == Json("auto")) return ok_status();
    if (!member->is_int() || member->as_int() < 1 || member->as_int() > kModelLimits.hidden_max) {
      return source_.corrupt_field(
          name, fmt::format("is neither \"auto\" nor 1 to {}", kModelLimits.hidden_max));
    }
    space_.dt_rank = static_cast<int32_t>(member->as_int());
    return ok_status();
  }

  Status read_mamba() const {
    HR_RETURN_IF_ERROR(read_dt_rank("time_step_rank"));
    HR_RETURN_IF_ERROR(read_expansion("expand", 2));
    HR_RETURN_IF_ERROR(read_flag("use_conv_bias", space_.conv_bias));
    HR_RETURN_IF_ERROR(read_flag("use_bias", space_.in_bias));
    HR_RETURN_IF_ERROR(read_number("mixer_rms_eps", space_.scan_norm_eps));
    space_.out_bias = space_.in_bias;
    set_all_layers(LayerMixer::kMamba);
    return ok_status();
  }

  // Every so many layers one attends, and every so many have experts.
  Status read_jamba() const {
    HR_RETURN_IF_ERROR(read_dt_rank("mamba_dt_rank"));
    HR_RETURN_IF_ERROR(read_expansion("mamba_expand", 2));
    space_.out_bias = space_.in_bias;
    space_.scan_norm_eps = config_.rms_eps;
    HR_ASSIGN_OR_RETURN(const std::vector<bool> attending, read_period("attn_layer", 8, 4));
    HR_ASSIGN_OR_RETURN(const std::vector<bool> mixtures, read_period("expert_layer", 2, 1));
    set_all_layers(LayerMixer::kMamba);
    ExpertConfig& experts = config_.experts;
    experts.dense_layers.assign(attending.size(), true);
    for (size_t i = 0; i < attending.size(); ++i) {
      if (attending[i]) config_.mixers.by_layer[i] = LayerMixer::kAttention;
      experts.dense_layers[i] = !mixtures[i];
    }
    if (experts.count <= 1) experts = {};  // one is a network
    return ok_status();
  }
  // The layers of <name>_period and <name>_offset.
  Result<std::vector<bool>> read_period(std::string_view name, int64_t period,
                                        int64_t offset) const {
    const std::string keys[] = {fmt::format("{}_period", name), fmt::format("{}_offset", name)};
    int64_t* const values[] = {&period, &offset};
    for (size_t i = 0; i < 2; ++i) {
      const Json* member = given_in(json_, keys[i]);
      if (member == nullptr) continue;
      if (!member->is_int()) return source_.corrupt_field(keys[i], "is no integer");
      *values[i] = member->as_int();
    }
    if (period < 1 || offset < 0 || offset >= period) {
      return source_.corrupt_field(keys[1],
                                   fmt::format("{} is not within a period of {}", offset, period));
    }
    std::vector<bool> layers;
    for (int64_t i = 0; i < config_.layers; ++i) layers.push_back(i % period == offset);
    return layers;
  }

  Status read_mamba2() const {
    HR_RETURN_IF_ERROR(require("rms_norm", true));
    HR_RETURN_IF_ERROR(read_expansion("expand", 2));
    HR_RETURN_IF_ERROR(read_flag("use_conv_bias", space_.conv_bias));
    HR_RETURN_IF_ERROR(read_flag("use_bias", space_.in_bias));
    space_.out_bias = space_.in_bias;
    set_all_layers(LayerMixer::kMamba2);
    return ok_status();
  }

  // Layers by name, those with a block "hybrid"; heads of a block are of two rows.
  Status read_zamba2() const {
    SharedBlockConfig& shared = config_.mixers.state_space.shared;
    constexpr std::string_view kList = "layers_block_type", kLater = "layer_types";
    HR_RETURN_IF_ERROR(require("use_long_context", false));
    HR_RETURN_IF_ERROR(require("use_conv_bias", true));
    HR_RETURN_IF_ERROR(read_flag("use_mem_rope", config_.mixers.rotates));
    HR_RETURN_IF_ERROR(read_flag("use_shared_attention_adapter", shared.adds_to_attention));
    HR_RETURN_IF_ERROR(read_flag("add_bias_linear", space_.in_bias));
    space_.out_bias = config_.ffn_bias = space_.in_bias;
    config_.qkv_bias = config_.attention_out_bias = false;
    HR_RETURN_IF_ERROR(read_number("time_step_min", space_.dt_min));
    HR_RETURN_IF_ERROR(read_expansion("mamba_expand", 2));
    HR_ASSIGN_OR_RETURN(shared.blocks,
                        count_or(json_, source_, "num_mem_blocks", 1, 1, kSharedUsesMax));
    HR_ASSIGN_OR_RETURN(shared.rank,
                        count_or(json_, source_, "adapter_rank", 128, 1, kModelLimits.hidden_max));
    if (given_in(json_, kList) == nullptr && given_in(json_, kLater) == nullptr) {
      return source_.corrupt_field(kList, "missing");
    }
    set_all_layers(LayerMixer::kMamba2);
    HR_RETURN_IF_ERROR(read_block_layers(kList));
    HR_RETURN_IF_ERROR(read_block_layers(kLater));
    return check_joined_heads();
  }

  Status check_joined_heads() const {
    const int64_t joined = 2 * int64_t{config_.hidden};
    const int64_t head_dim = config_.heads > 0 ? joined / config_.heads : 0;
    if (config_.head_dim == 0 && head_dim <= kModelLimits.head_dim_max) {
      config_.head_dim = static_cast<int32_t>(head_dim);
    }
    if (config_.heads < 1) {
      return source_.corrupt_field("num_attention_heads", "0 heads of layers that attend");
    }
    if (head_dim == config_.head_dim && head_dim * config_.heads == joined) return ok_status();
    return source_.corrupt_field("attention_head_dim",
                                 fmt::format("{} heads of {} are not {} wide, as two rows are",
                                             config_.heads, config_.head_dim, joined));
  }

  Status read_block_layers(std::string_view key) const {
    const Json* list = given_in(json_, key);
    if (list == nullptr) return ok_status();
    std::vector<LayerMixer>& layers = config_.mixers.by_layer;
    if (!list->is_array() || list->as_array().size() != layers.size()) {
      return source_.corrupt_field(key, fmt::format("is no list of {} layers", config_.layers));
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      const Json& name = list->as_array()[i];
      const bool mamba = name == Json("mamba") || name == Json("linear_attention");
      if (!mamba && name != Json("hybrid")) {
        return source_.unsupported_field(
            key, "has a layer that is not supported (known: mamba, linear_attention, hybrid)");
      }
      layers[i] = mamba ? LayerMixer::kMamba2 : LayerMixer::kMamba2Beside;
    }
    if (std::ranges::count(layers, LayerMixer::kMamba2Beside) <= kSharedUsesMax) return ok_status();
    return source_.unsupported_field(
        key, fmt::format("has more than {} layers with a block", kSharedUsesMax));
  }

  Status read_bamba() const {
    space_.out_bias = space_.in_bias;
    HR_RETURN_IF_ERROR(read_expansion("mamba_expand", 2));
    set_all_layers(LayerMixer::kMamba2);
    constexpr std::string_view kList = "attn_layer_indices";
    const Json* list = given_in(json_, kList);
    if (list == nullptr) return ok_status();
    if (!list->is_array()) return source_.corrupt_field(kList, "is no list of layers");
    for (const Json& layer : list->as_array()) {
      if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= config_.layers) {
        return source_.corrupt_field(
            kList, fmt::format("has something that is none of {} layers", config_.layers));
      }
      config_.mixers.by_layer[static_cast<size_t>(layer.as_int())] = LayerMixer::kAttention;
    }
    return ok_status();
  }

  // Without experts what is called the shared expert is the network.
  Status read_granite() const {
    space_.out_bias = space_.in_bias;
    HR_RETURN_IF_ERROR(read_expansion("mamba_expand", 2));
    ExpertConfig& experts = config_.experts;
    if (experts.count == 0) {
      config_.ffn = experts.shared_width;
      config_.fused.shared_names = true;
    }
    constexpr std::string_view kPositions = "position_embedding_type";
    const Json* positions = given_in(json_, kPositions);
    config_.mixers.rotates = positions != nullptr && *positions == Json("rope");
    if (positions != nullptr && !config_.mixers.rotates && *positions != Json("nope")) {
      return source_.unsupported_field(kPositions, "only \"rope\", \"nope\" or none is supported");
    }
    set_all_layers(LayerMixer::kMamba2);
    return read_layer_names("layer_types");
  }

  // By name, in transformers 4 and 5.
  Status read_layer_names(std::string_view key) const {
    const Json* list = given_in(json_, key);
    if (list == nullptr) return ok_status();
    if (!list->is_array() || list->as_array().size() != config_.mixers.by_layer.size()) {
      return source_.corrupt_field(key, fmt::format("is no list of {} layers", config_.layers));
    }
    for (size_t i = 0; i < config_.mixers.by_layer.size(); ++i) {
      const Json& name = list->as_array()[i];
      const bool mamba = name == Json("mamba") || name == Json("linear_attention");
      if (!mamba && name != Json("attention") && name != Json("full_attention")) {
        return source_.unsupported_field(
            key,
            "has a layer that is not supported (known: mamba, linear_attention, attention, "
            "full_attention)");
      }
      config_.mixers.by_layer[i] = mamba ? LayerMixer::kMamba2 : LayerMixer::kAttention;
    }
    return ok_status();
  }

  // Multipliers go to norms, scales and the convolution, which know of no biases behind them.
  Status read_falcon() const {
    HR_RETURN_IF_ERROR(require("attention_bias", false));
    HR_RETURN_IF_ERROR(require("mlp_bias", false));
    HR_RETURN_IF_ERROR(require("mamba_use_mlp", true));
    HR_RETURN_IF_ERROR(read_flag("projectors_bias", space_.out_bias));
    HR_RETURN_IF_ERROR(read_flag("mamba_rms_norm", space_.norm));
    HR_RETURN_IF_ERROR(read_flag("mamba_norm_before_gate", space_.norm_before_gate));
    HR_RETURN_IF_ERROR(read_expansion("mamba_expand", 2));
    if (const Json* inner = given_in(json_, "mamba_d_ssm")) {
      if (!inner->is_int() || inner->as_int() < 1 || inner->as_int() > kModelLimits.ffn_max) {
        return source_.corrupt_field("mamba_d_ssm", "is no width");
      }
      space_.inner = static_cast<int32_t>(inner->as_int());
    }
    BranchMultipliers& by = config_.mixers.multipliers;
    float head = 1;
    for (const auto& [name, number] : {std::pair("ssm_in_multiplier", &by.ssm_in),
                                       {"ssm_out_multiplier", &by.ssm_out},
                                       {"attention_in_multiplier", &by.attention_in},
                                       {"attention_out_multiplier", &by.attention_out},
                                       {"key_multiplier", &by.key},
                                       {"lm_head_multiplier", &head}}) {
      HR_RETURN_IF_ERROR(read_number(name, *number));
    }
    HR_RETURN_IF_ERROR(read_numbers("ssm_multipliers", by.ssm));
    HR_RETURN_IF_ERROR(read_numbers("mlp_multipliers", by.ffn));
    if (space_.in_bias && by.ssm_in != 1) {
      return source_.unsupported_field("mamba_proj_bias",
                                       "is not supported with an ssm_in_multiplier");
    }
    for (const auto& [name, number] :
         {std::pair("lm_head_multiplier", head), {"mlp_multipliers", by.ffn[0]}}) {
      if (!(number > 0)) return source_.corrupt_field(name, "is not above 0");
    }
    config_.logit_divisor = 1 / head;
    set_all_layers(LayerMixer::kMamba2Beside);
    return ok_status();
  }

  // A layer is one part: a letter of hybrid_override_pattern, or a name of layers_block_type.
  Status read_nemotron() const {
    HR_RETURN_IF_ERROR(check_activation("mlp_hidden_act", "relu2"));
    HR_RETURN_IF_ERROR(require("attention_bias", false));
    HR_RETURN_IF_ERROR(read_flag("use_conv_bias", space_.conv_bias));
    space_.in_bias = false;
    HR_RETURN_IF_ERROR(read_flag("use_bias", space_.in_bias));
    space_.out_bias = space_.in_bias;
    config_.qkv_bias = config_.attention_out_bias = config_.ffn_bias = false;
    HR_RETURN_IF_ERROR(read_flag("mlp_bias", config_.ffn_bias));
    // The class takes this number for the least time step, and no largest one.
    space_.dt_min = 0.001f;
    HR_RETURN_IF_ERROR(read_number("time_step_min", space_.dt_min));
    space_.dt_max = std::numeric_limits<float>::infinity();
    for (const std::string_view name : {"moe_latent_size", "sliding_window"}) {
      if (given_in(json_, name) == nullptr) continue;
      return source_.unsupported_field(name, "is not supported, only null");
    }
    space_.inner = 0;
    HR_RETURN_IF_ERROR(read_pattern());
    const bool mixtures = std::ranges::count(config_.experts.dense_layers, false) > 0;
    if (!mixtures) config_.experts = {};
    if (mixtures && config_.ffn_bias) {
      return source_.unsupported_field("mlp_bias", "biases of experts are not supported");
    }
    return ok_status();
  }

  struct LayerKind {
    std::array<std::string_view, 3> names;  // a letter, and those of transformers 4 and 5
    LayerMixer mixer;
    bool experts;
  };

  Status read_pattern() const {
    std::vector<std::string> layers;
    std::string_view key = "layers_block_type";
    const Json* list = given_in(json_, key);
    if (list != nullptr && list->is_array()) {
      for (const Json& name : list->as_array()) {
        layers.push_back(name.is_string() ? name.as_string() : "?");
      }
    } else {
      key = "hybrid_override_pattern";
      const Json* pattern = given_in(json_, key);
      if (pattern == nullptr) return source_.corrupt_field(key, "missing");
      if (!pattern->is_string()) return source_.corrupt_field(key, "is no text");
      for (const char letter : pattern->as_string()) layers.emplace_back(1, letter);
    }
    if (layers.empty() || std::ssize(layers) > kModelLimits.layers_max) {
      return source_.corrupt_field(
          key, fmt::format("is not of 1 to {} layers", kModelLimits.layers_max));
    }
    config_.layers = static_cast<int32_t>(layers.size());
    config_.experts.dense_layers.assign(layers.size(), true);
    config_.mixers.by_layer.clear();
    for (size_t i = 0; i < layers.size(); ++i) HR_RETURN_IF_ERROR(add_layer(key, layers[i], i));
    return ok_status();
  }

  Status add_layer(std::string_view key, std::string_view name, size_t index) const {
    static constexpr LayerKind kKinds[] = {
        {{"M", "mamba", "linear_attention"}, LayerMixer::kMamba2, false},
        {{"*", "attention", "full_attention"}, LayerMixer::kAttention, false},
        {{"-", "mlp", "mlp"}, LayerMixer::kNone, false},
        {{"E", "moe", "moe"}, LayerMixer::kNone, true}};
    for (const LayerKind& kind : kKinds) {
      if (std::ranges::find(kind.names, name) == kind.names.end()) continue;
      config_.mixers.by_layer.push_back(kind.mixer);
      if (kind.experts) config_.experts.dense_layers[index] = false;
      return ok_status();
    }
    return source_.unsupported_field(
        key, fmt::format("layer {} is \"{}\", which is not supported (known: M, mamba, "
                         "linear_attention; *, attention, full_attention; -, mlp; E, moe)",
                         index, printable(name)));
  }

  const Json& json_;
  const ConfigSource& source_;
  ModelConfig& config_;
  StateSpaceConfig& space_;
};

void set_defaults(ModelConfig& config, int32_t context_length, float eps) {
  config.rope_theta = 1e4;
  config.context_length = context_length;
  config.rms_eps = eps;
  config.mixers.conv_taps = 4;
  config.mixers.rate_is_log = true;
}

// The first layer of which `wanted` says so; 0 where there is none.
template <class Wanted>
size_t first_layer(const ModelConfig& config, const Wanted& wanted) {
  const auto& layers = config.mixers.by_layer;
  const auto found = std::ranges::find_if(layers, wanted);
  return found == layers.end() ? 0 : static_cast<size_t>(found - layers.begin());
}

}  // namespace

// Of models that no position limits: as llama.cpp's converter assumes.
constexpr int32_t kAnyContext = 1 << 20;

void set_pure_defaults(ModelConfig& config) {
  set_defaults(config, kAnyContext, 1e-5f);
  config.heads = config.ffn = 1;  // there are none
  config.mixers.one_part = true;
}
void mamba_defaults(ModelConfig& config) {
  set_pure_defaults(config);
  config.tied_embeddings = true;
  config.mixers.state_space = {.state_dim = 16};
}
void falcon_mamba_defaults(ModelConfig& config) {
  mamba_defaults(config);
  config.mixers.state_space.scan_norms = ScanNorms::kBare;
}
void jamba_defaults(ModelConfig& config) {
  set_defaults(config, 262144, 1e-6f);
  config.kv_heads = 8;
  config.mixers.rotates = false;
  config.mixers.state_space = {.state_dim = 16, .scan_norms = ScanNorms::kWeights};
  config.experts = {.count = 16, .used = 2, .normalised = false};
}
void mamba2_defaults(ModelConfig& config) {
  set_pure_defaults(config);
  config.mixers.state_space = {.state_dim = 128, .heads = 128, .head_dim = 64, .groups = 8};
}
void bamba_defaults(ModelConfig& config) {
  set_defaults(config, 262144, 1e-5f);
  config.kv_heads = 8;
  config.mixers.rotated = 0.5;
  config.mixers.state_space = {.state_dim = 256, .heads = 128};
}
void granite_hybrid_defaults(ModelConfig& config) {
  set_defaults(config, 2048, 1e-6f);
  config.attention_scale = 1;
  config.mixers.state_space = {.state_dim = 256, .heads = 128};
  config.experts = {.count = 8, .used = 2, .shared_width = 1024, .normalised = {}};
}
void falcon_h1_defaults(ModelConfig& config) {
  set_defaults(config, 8192, 1e-5f);
  config.kv_heads = 8;
  config.mixers.state_space = {
      .inner = 1024, .state_dim = 256, .heads = 128, .norm = false, .norm_before_gate = true};
}
void zamba2_defaults(ModelConfig& config) {
  set_defaults(config, 4096, 1e-5f);
  config.tied_embeddings = true;
  config.mixers.rotates = false;
  config.mixers.state_space = {.state_dim = 64, .heads = 8, .dt_min = 0.001f};
}
void nemotron_h_defaults(ModelConfig& config) {
  set_defaults(config, 4096, 1e-5f);
  config.layers = 1;  // as many as the pattern has letters
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.ffn = 21504;
  config.mixers.one_part = true;
  config.mixers.rotates = false;
  config.mixers.state_space = {.state_dim = 128, .heads = 128, .head_dim = 64, .groups = 8};
  config.experts = {.used = 2,
                    .width = 7688,
                    .shared_width = 7688,
                    .normalised = true,
                    .scores = ExpertScores::kSigmoid};
}

Status read_state_space(const Json& json, const ConfigSource& source, ModelConfig& config) {
  return StateSpaceReader(json, source, config).read();
}

Status read_gguf_state_space(const GgufFile& file, const ConfigSource& source,
                             std::span<const int64_t> widths, ModelConfig& config) {
  MixerConfig& mixers = config.mixers;
  const std::string_view name = config.architecture;
  mixers.one_part = name == "mamba" || name == "mamba2" || name.starts_with("nemotron_h");
  if (mixers.by_layer.empty()) {
    mixers.by_layer.assign(static_cast<size_t>(config.layers), *source.family->other_mixer);
  }
  config.experts.dense_layers.assign(
      config.experts.count > 0 && mixers.one_part ? static_cast<size_t>(config.layers) : 0, true);
  for (size_t i = 0; i < std::min(widths.size(), mixers.by_layer.size()); ++i) {
    if (widths[i] == 0 || mixers.by_layer[i] == LayerMixer::kAttention) continue;
    mixers.by_layer[i] = LayerMixer::kNone;
    const bool experts = file.find_tensor(fmt::format("blk.{}.ffn_up_exps.weight", i)) != nullptr;
    if (!config.experts.dense_layers.empty()) config.experts.dense_layers[i] = !experts;
  }
  if (name == "granitehybrid") {
    // llama.cpp's switch for the rotation of Granite's kin.
    HR_ASSIGN_OR_RETURN(const auto rotates,
                        file.optional_bool(fmt::format("{}.rope.scaling.finetuned", name)));
    mixers.rotates = rotates.value_or(true);
    if (mixers.rotates && config.rope_dim != 0 && config.rope_dim * config.heads < config.hidden) {
      return file.unsupported_field(fmt::format("{}.rope.dimension_count", name),
                                    "GGUF files of Bamba are not supported: use the model's "
                                    "safetensors");
    }
  }
  if (name.starts_with("nemotron_h")) {
    mixers.rotates = false;
    config.experts.scores = ExpertScores::kSigmoid;
  }
  const auto has = [&](size_t layer, std::string_view tensor) {
    return file.find_tensor(fmt::format("blk.{}.{}", layer, tensor)) != nullptr;
  };
  if (name == "jamba") {
    mixers.rotates = false;
    ExpertConfig& experts = config.experts;
    if (experts.count <= 1) experts = {};  // one is a network
    experts.normalised = false;
    for (size_t i = 0; i < mixers.by_layer.size() && experts.count > 0; ++i) {
      experts.dense_layers.push_back(!has(i, "ffn_gate_inp.weight"));
    }
  }
  if (name == "mamba") {
    HR_ASSIGN_OR_RETURN(const auto norms, file.optional_bool("mamba.ssm.dt_b_c_rms"));
    if (norms.value_or(false)) mixers.state_space.scan_norms = ScanNorms::kBare;
  }
  const size_t mamba = first_layer(config, [](LayerMixer mixer) {
    return mixer != LayerMixer::kAttention && mixer != LayerMixer::kNone;
  });
  if (has(mamba, "ssm_dt_norm.weight")) {
    mixers.state_space.scan_norms = ScanNorms::kWeights;
    mixers.state_space.scan_norm_eps = config.rms_eps;
  }
  mixers.state_space.conv_bias = has(mamba, "ssm_conv1d.bias");
  mixers.state_space.in_bias = has(mamba, "ssm_in.bias");
  mixers.state_space.out_bias = has(mamba, "ssm_out.bias");
  mixers.state_space.norm = has(mamba, "ssm_norm.weight");
  const size_t attention = first_layer(config, attends);
  config.qkv_bias = has(attention, "attn_q.bias");
  config.attention_out_bias = has(attention, "attn_output.bias");
  if (!mixers.one_part) return ok_status();
  const size_t network =
      first_layer(config, [](LayerMixer mixer) { return mixer == LayerMixer::kNone; });
  config.ffn_bias = has(network, "ffn_up.bias");
  return ok_status();
}

Status finish_state_space(const ConfigSource& source, ModelConfig& config) {
  StateSpaceConfig& space = config.mixers.state_space;
  if (space.heads == 0) {  // Mamba, or none
    if (space.state_dim == 0 || (space.inner > 0 && space.dt_rank > 0)) return ok_status();
    return source.corrupt_field(source.name_of(&StateSpaceConfig::inner), "missing");
  }
  const std::string name = source.name_of(&StateSpaceConfig::heads);
  if (space.inner == 0) {
    const int64_t inner = int64_t{space.heads} * space.head_dim;
    if (inner > kModelLimits.ffn_max) {
      return source.corrupt_field(name, fmt::format("{} heads of {} are wider than {}", space.heads,
                                                    space.head_dim, kModelLimits.ffn_max));
    }
    space.inner = static_cast<int32_t>(inner);
  }
  if (space.head_dim == 0 && space.inner % space.heads == 0) {
    space.head_dim = space.inner / space.heads;
  }
  if (space.head_dim == 0 || int64_t{space.heads} * space.head_dim != space.inner ||
      space.head_dim > kModelLimits.head_dim_max) {
    return source.corrupt_field(
        name, fmt::format("{} heads of {} are not the width {} of a state space", space.heads,
                          space.head_dim, space.inner));
  }
  if (space.heads % space.groups == 0) return ok_status();
  return source.corrupt_field(
      source.name_of(&StateSpaceConfig::groups),
      fmt::format("{} groups do not divide {} heads", space.groups, space.heads));
}

std::string without_infinities(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      const size_t begin = i;
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
      i = std::min(i + 1, text.size());
      out += text.substr(begin, i - begin);
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!text.substr(i).starts_with(word)) continue;
      out += "null";
      i += word.size();
      replaced = true;
      break;
    }
    if (!replaced) out += text[i++];
  }
  return out;
}

}  // namespace headrace
