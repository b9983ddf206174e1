// ModelConfig from a Hugging Face config.json, in the spellings of transformers 4 and 5.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weights/deepseek4_family.h"
#include "weights/encoder_config.h"
#include "weights/gemma_families.h"
#include "weights/gpt_families.h"
#include "weights/hub_quantisation.h"
#include "weights/json_members.h"
#include "weights/kimi_linear_family.h"
#include "weights/kin_families.h"
#include "weights/latent_families.h"
#include "weights/llama4_family.h"
#include "weights/mamba_families.h"
#include "weights/minimax_family.h"
#include "weights/model_config.h"
#include "weights/model_family.h"
#include "weights/qwen35_families.h"
#include "weights/recurrent_gemma_family.h"
#include "weights/rwkv_family.h"

namespace headrace {
namespace {

// The architecture's name in config.json.
Result<std::string> read_class(const Json& json, std::string_view path) {
  const ConfigSource source{path};
  if (!json.is_object()) return source.corrupt_field("config", "is no JSON object");
  const Json* list = said_member(json, "architectures");
  if (list == nullptr) return source.corrupt_field("architectures", "missing");
  if (!list->is_array() || list->as_array().empty() || !list->as_array()[0].is_string()) {
    return source.corrupt_field("architectures", "is no list of names");
  }
  return list->as_array()[0].as_string();
}

class JsonConfigReader {
 public:
  // `json`: the object with the text model's members; `outer`: the whole file.
  JsonConfigReader(const Json& json, const Json& outer, const Json& generation,
                   const ConfigSource& source, HfClassUse use)
      : json_(json), outer_(outer), generation_(generation), source_(source), use_(use) {}

  Result<ModelConfig> read() {
    config_.architecture = source_.family->architecture;
    source_.family->hf_defaults(config_);
    HR_RETURN_IF_ERROR(refuse_unknown_features());
    HR_RETURN_IF_ERROR(read_fields(source_.family->fields));
    HR_RETURN_IF_ERROR(read_fields(common_fields()));
    HR_RETURN_IF_ERROR(read_gpt_flags(json_, source_, config_));
    HR_RETURN_IF_ERROR(read_query_scalar());
    HR_RETURN_IF_ERROR(read_kin(json_, source_, config_));
    HR_RETURN_IF_ERROR(read_flags());
    HR_RETURN_IF_ERROR(read_head());
    HR_RETURN_IF_ERROR(read_expert_rules());
    HR_RETURN_IF_ERROR(read_rope());
    HR_RETURN_IF_ERROR(read_window());
    HR_RETURN_IF_ERROR(read_rope_layers());
    for (const auto read : {read_latent, read_minimax_m3, read_deepseek4, read_qwen4}) {
      HR_RETURN_IF_ERROR(read(json_, source_, config_));
    }
    HR_RETURN_IF_ERROR(read_mixers());
    HR_RETURN_IF_ERROR(read_layered_gemma(json_, source_, config_));
    HR_RETURN_IF_ERROR(read_tuned_queries(json_, source_, config_));
    HR_RETURN_IF_ERROR(adjust_ffn());
    HR_RETURN_IF_ERROR(finish_config(source_, config_));
    HR_RETURN_IF_ERROR(read_end_ids());
    return std::move(config_);
  }

 private:
  const Json* find(std::string_view name) const { return said_member(json_, name); }
  Status wrong_type(std::string_view name, const Json& member, std::string_view expected) const {
    return source_.corrupt_field(name,
                                 fmt::format("is {}, expected {}", member.type_name(), expected));
  }

  Status refuse_unknown_features() const {
    HR_RETURN_IF_ERROR(check_activation());
    for (const std::string_view name :
         {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
      const Json* experts = source_.family->reads_hf(name) ? nullptr : find(name);
      if (experts != nullptr && (!experts->is_int() || experts->as_int() != 0)) {
        return source_.unsupported_field(name,
                                         "mixtures of experts of this class are not supported");
      }
    }
    if (find("clip_qkv") != nullptr) {
      return source_.unsupported_field("clip_qkv", "is not supported, only null");
    }
    if (const Json* quantised = said_member(outer_, "quantization_config"); quantised != nullptr) {
      HR_RETURN_IF_ERROR(hub_quantisation_from_json(*quantised, source_.file).status());
    }
    for (const std::string_view name :
         {"use_bidirectional_attention", "is_encoder_decoder", "conv_bias", "qk_layernorm"}) {
      if (name == "qk_layernorm" && source_.family->architecture == "persimmon") continue;
      if (sees_both_ways_in_images_alone(json_, name)) continue;
      HR_ASSIGN_OR_RETURN(const bool set, flag_or(json_, name, false));
      if (set) return source_.unsupported_field(name, "is not supported");
    }
    for (const std::string_view name : {"attn_output_gate", "use_expert_bias"}) {
      HR_ASSIGN_OR_RETURN(const bool set, flag_or(json_, name, true));
      if (!set) return source_.unsupported_field(name, "is not supported, only true or none");
    }
    for (const auto& [name, known] : {std::pair("swiglu_limit", 7.0), {"swiglu_alpha", 1.702}}) {
      HR_ASSIGN_OR_RETURN(const double value, number_or(json_, name, known));
      if (value == known || source_.family->reads_hf(name)) continue;
      return source_.unsupported_field(name,
                                       fmt::format("{} is not supported, only {}", value, known));
    }
    HR_ASSIGN_OR_RETURN(const bool causal, flag_or(json_, "is_causal", true));
    if (!causal) {
      return source_.unsupported_field("is_causal", "is not supported, only true or none");
    }
    return ok_status();
  }

  Status check_activation() const {
    const auto& known = source_.family->hf_activations;
    for (const std::string_view name :
         {"hidden_activation", "hidden_act", "activation_function", "activation", "afn"}) {
      const Json* member = find(name);
      if (member == nullptr) continue;
      if (member->is_string() &&
          std::find(known.begin(), known.end(), member->as_string()) != known.end()) {
        return ok_status();
      }
      return source_.unsupported_field(name, fmt::format("only \"{}\" is supported", known[0]));
    }
    return ok_status();
  }

  // ---- numbers and flags ----

  Status read_fields(std::span<const ConfigField> fields) {
    for (const ConfigField& field : fields) {
      if (!field.hf.empty()) HR_RETURN_IF_ERROR(read_field(field));
    }
    return ok_status();
  }

  Status read_field(const ConfigField& field) {
    if (has_list_by_layer(json_, config_.architecture, field)) return ok_status();
    const Json* given = json_.find(field.hf);
    if (given != nullptr && given->is_null() && field.presence == Presence::kNullable) {
      visit_member(config_, field.member, [](auto& value) { value = 0; });
      return ok_status();
    }
    const Json* member = find(field.hf);
    if (member == nullptr) {
      const int64_t factor = source_.family->ffn_factor;
      if (field.member == ConfigMember(&ModelConfig::ffn) && is_missing(field, config_) &&
          factor > 0) {
        return set_field(source_, field, static_cast<double>(factor * config_.hidden), config_);
      }
      return is_missing(field, config_) ? source_.corrupt_field(field.hf, "missing") : ok_status();
    }
    if (field.is_whole() && !member->is_int()) return wrong_type(field.hf, *member, "an integer");
    if (!member->is_number()) return wrong_type(field.hf, *member, "a number");
    return set_field(source_, field, member->as_double(), config_);
  }

  Result<double> number_or(const Json& object, std::string_view name, double fallback) const {
    const Json* member = said_member(object, name);
    if (member == nullptr) return fallback;
    if (!member->is_number()) return wrong_type(name, *member, "a number");
    return member->as_double();
  }
  Result<int32_t> length_or(const Json& object, std::string_view name, int32_t fallback) const {
    const Json* member = said_member(object, name);
    if (member == nullptr) return fallback;
    if (!member->is_int()) return wrong_type(name, *member, "an integer");
    const int64_t value = member->as_int();
    if (value < 0 || value > kModelLimits.context_length_max) {
      return source_.corrupt_field(
          name, fmt::format("{} is outside 0 to {}", value, kModelLimits.context_length_max));
    }
    return static_cast<int32_t>(value);
  }
  Result<bool> flag_or(const Json& object, std::string_view name, bool fallback) const {
    const Json* member = said_member(object, name);
    if (member == nullptr) return fallback;
    if (!member->is_bool()) return wrong_type(name, *member, "a boolean");
    return member->as_bool();
  }

  // Gemma's scores are divided by the root of this number.
  Status read_query_scalar() {
    constexpr std::string_view kField = "query_pre_attn_scalar";
    HR_ASSIGN_OR_RETURN(const double scalar, number_or(json_, kField, 0));
    if (scalar == 0) return ok_status();
    if (!(scalar > 0 && scalar < 1e9)) {
      return source_.corrupt_field(kField, fmt::format("{} is not between 0 and 1e9", scalar));
    }
    config_.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
    return ok_status();
  }

  Status read_flags() {
    // A file that wraps a text model may say it outside, where true has the last word. Of Qwen 3 VL
    // nothing else counts.
    constexpr std::string_view kTied = "tie_word_embeddings";
    HR_ASSIGN_OR_RETURN(const bool outer, flag_or(outer_, kTied, config_.tied_embeddings));
    HR_ASSIGN_OR_RETURN(bool outside, flag_or(outer_, kTied, false));
    outside |= source_.family->hf_classes.back().starts_with("Qwen3VL");
    HR_ASSIGN_OR_RETURN(config_.tied_embeddings, flag_or(outside ? outer_ : json_, kTied, outer));
    HR_ASSIGN_OR_RETURN(config_.tied_embeddings,
                        flag_or(json_, "tie_embedding", config_.tied_embeddings));  // LFM2's
    if (config_.architecture == "inkling") config_.tied_embeddings = false;  // whatever a file says
    HR_ASSIGN_OR_RETURN(config_.qkv_bias, flag_or(json_, "attention_bias", config_.qkv_bias));
    HR_ASSIGN_OR_RETURN(config_.attention_out_bias,
                        flag_or(json_, "attention_bias", config_.attention_out_bias));
    HR_ASSIGN_OR_RETURN(config_.attention_out_bias,
                        flag_or(json_, "attention_out_bias", config_.attention_out_bias));
    HR_ASSIGN_OR_RETURN(config_.ffn_bias, flag_or(json_, "mlp_bias", config_.ffn_bias));
    HR_ASSIGN_OR_RETURN(config_.head.bias, flag_or(json_, "lm_head_bias", config_.head.bias));
    HR_ASSIGN_OR_RETURN(config_.mixers.post_norms,
                        flag_or(json_, "use_post_norm", config_.mixers.post_norms));
    HR_ASSIGN_OR_RETURN(config_.mixers.parallel,
                        flag_or(json_, "use_parallel_residual", config_.mixers.parallel));
    if (config_.mixers.head_norms) {
      HR_ASSIGN_OR_RETURN(config_.mixers.head_norms,
                          flag_or(json_, "use_qk_norm", *config_.mixers.head_norms));
    }
    HR_ASSIGN_OR_RETURN(config_.qkv_bias, flag_or(json_, "qkv_bias", config_.qkv_bias));
    HR_ASSIGN_OR_RETURN(config_.qkv_bias, flag_or(json_, "use_qkv_bias", config_.qkv_bias));
    if (find("use_bias") == nullptr) return ok_status();  // StarCoder2's, for all three
    HR_ASSIGN_OR_RETURN(const bool all, flag_or(json_, "use_bias", true));
    config_.qkv_bias = config_.attention_out_bias = config_.ffn_bias = all;
    return ok_status();
  }

  // What stands behind the layers, where it is not an output matrix. (What the classes are called
  // is PoolingConfig's.)
  Status read_head() {
    config_.head.matrix = use_ == HfClassUse::kGenerate;
    if (!config_.head.matrix) config_.tied_embeddings = true;  // there is nothing to be tied to
    if (use_ != HfClassUse::kClassify) return ok_status();
    constexpr int32_t kClassesMax = 1 << 16;
    const Json* labels = said_member(outer_, "id2label");
    const bool named = labels != nullptr && labels->is_object();
    HR_ASSIGN_OR_RETURN(config_.head.classes, length_or(outer_, "num_labels", 2));
    if (named) config_.head.classes = static_cast<int32_t>(labels->as_object().size());
    if (config_.head.classes >= 1 && config_.head.classes <= kClassesMax) return ok_status();
    return source_.corrupt_field(named ? "id2label" : "num_labels",
                                 fmt::format("is not of 1 to {} classes", kClassesMax));
  }

  // ---- mixtures of experts ----

  Status read_expert_rules() {
    ExpertConfig& experts = config_.experts;
    if (experts.count == 0) return ok_status();
    if (experts.normalised) {
      HR_ASSIGN_OR_RETURN(experts.normalised,
                          flag_or(json_, "norm_topk_prob", *experts.normalised));
    }
    // Qwen's: every n-th layer is a mixture, but for those of a list.
    HR_ASSIGN_OR_RETURN(const int32_t period, length_or(json_, "decoder_sparse_step", 1));
    if (period == 0) return source_.corrupt_field("decoder_sparse_step", "0 is no period");
    experts.dense_layers.resize(static_cast<size_t>(config_.layers));
    for (int32_t i = 0; i < config_.layers; ++i) {
      if ((i + 1) % period != 0) experts.dense_layers[static_cast<size_t>(i)] = true;
    }
    HR_RETURN_IF_ERROR(read_dense_ends(experts));
    HR_RETURN_IF_ERROR(read_network_types(experts));
    return read_dense_layers(experts);
  }

  // By name, in transformers 5.
  Status read_network_types(ExpertConfig& experts) const {
    constexpr std::string_view kTypes = "mlp_layer_types";
    const Json* types = find(kTypes);
    if (types == nullptr) return ok_status();
    HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*types, source_, kTypes, config_));
    experts.dense_first = 0;
    experts.dense_layers.clear();
    for (const Json& type : entries) {
      if (!type.is_string()) return wrong_type(kTypes, type, "a list of names");
      experts.dense_layers.push_back(type.as_string() == "dense");
    }
    return ok_status();
  }

  // ERNIE's: mixtures from one layer to another, of these each n-th.
  Status read_dense_ends(ExpertConfig& experts) const {
    HR_ASSIGN_OR_RETURN(const int32_t period, length_or(json_, "moe_layer_interval", 1));
    if (period == 0) return source_.corrupt_field("moe_layer_interval", "0 is no period");
    const Json* last = find("moe_layer_end_index");
    if (last != nullptr && !last->is_int()) {
      return wrong_type("moe_layer_end_index", *last, "an integer");
    }
    for (int32_t i = 0; i < config_.layers; ++i) {
      const bool behind = last != nullptr && last->as_int() >= 0 && i > last->as_int();
      if (behind || (i + 1) % period != 0) experts.dense_layers[static_cast<size_t>(i)] = true;
    }
    return ok_status();
  }

  Status read_dense_layers(ExpertConfig& experts) const {
    constexpr std::string_view kList = "mlp_only_layers";
    const Json* list = find(kList);
    if (list == nullptr) return ok_status();
    if (!list->is_array()) return wrong_type(kList, *list, "a list of layers");
    for (const Json& layer : list->as_array()) {
      if (!layer.is_int()) return wrong_type(kList, layer, "a list of integers");
      if (layer.as_int() < 0 || layer.as_int() >= config_.layers) {
        return source_.corrupt_field(
            kList, fmt::format("{} is none of {} layers", layer.as_int(), config_.layers));
      }
      experts.dense_layers[static_cast<size_t>(layer.as_int())] = true;
    }
    return ok_status();
  }

  // ---- rotary positions ----

  // transformers 4: rope_theta and rope_scaling; 5: rope_parameters, for models with two bases one
  // object for each kind of layer.
  Status read_rope() {
    leave_assumed_rotation();
    HR_ASSIGN_OR_RETURN(double rotated,
                        number_or(json_, "partial_rotary_factor", config_.mixers.rotated));
    HR_ASSIGN_OR_RETURN(rotated, number_or(json_, "rotary_pct", rotated));  // GPT-NeoX's
    HR_ASSIGN_OR_RETURN(config_.rope_theta,
                        number_or(json_, "rotary_emb_base", config_.rope_theta));
    for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
      const Json* parameters = find(name);
      if (parameters == nullptr) continue;
      if (!parameters->is_object()) return wrong_type(name, *parameters, "an object");
      const Json* global = said_member(*parameters, "full_attention");
      const Json* local = said_member(*parameters, "sliding_attention");
      if (local != nullptr) HR_RETURN_IF_ERROR(read_local_rope(*local));
      if (global == nullptr && local != nullptr) continue;
      const Json& own = global == nullptr ? *parameters : *global;
      if (!own.is_object()) return wrong_type(name, own, "an object");
      HR_RETURN_IF_ERROR(set_theta(own, config_.rope_theta));
      HR_ASSIGN_OR_RETURN(rotated, number_or(own, "partial_rotary_factor", rotated));
      HR_RETURN_IF_ERROR(read_scaling(name, own));
    }
    return set_rope_dim(rotated);
  }

  // Of classes that assume a scaled rotation: what a file says of it replaces all of that.
  void leave_assumed_rotation() {
    const bool says = find("rope_scaling") != nullptr || find("rope_parameters") != nullptr;
    if (!says || config_.rope_scaling.kind == RopeScaling::Kind::kNone) return;
    config_.rope_scaling = {};
    config_.mixers.temperature = {};
  }

  Status set_theta(const Json& parameters, double& theta) const {
    HR_ASSIGN_OR_RETURN(const double value, number_or(parameters, "rope_theta", theta));
    if (value != 0 && !(value >= 1 && value <= 1e12)) {
      return source_.corrupt_field("rope_theta",
                                   fmt::format("{} is not between 1 and 1e12", value));
    }
    theta = value;
    return ok_status();
  }

  Status read_local_rope(const Json& parameters) {
    if (!parameters.is_object()) return wrong_type("sliding_attention", parameters, "an object");
    const Json* type = said_member(parameters, "rope_type");
    if (type != nullptr && (!type->is_string() || type->as_string() != "default")) {
      return source_.unsupported_field("rope_parameters",
                                       "scaled positions of sliding layers are not supported");
    }
    return set_theta(parameters, config_.rope_theta_local);
  }

  Status set_rope_dim(double rotated) {
    if (!(rotated > 0 && rotated <= 1)) {
      return source_.corrupt_field("partial_rotary_factor",
                                   fmt::format("{} is not between 0 and 1", rotated));
    }
    const int32_t head_dim =
        config_.head_dim != 0 ? config_.head_dim : config_.hidden / std::max(config_.heads, 1);
    if (rotated < 1) config_.rope_dim = static_cast<int32_t>(head_dim * rotated);
    HR_ASSIGN_OR_RETURN(config_.rope_dim, length_or(json_, "rotary_dim", config_.rope_dim));
    return ok_status();
  }

  Status read_scaling(std::string_view name, const Json& parameters) {
    const Json* type = said_member(parameters, "rope_type");
    if (type == nullptr) type = said_member(parameters, "type");
    if (type == nullptr) return ok_status();
    if (!type->is_string()) return wrong_type(name, *type, "the name of a type");
    struct Known {
      std::string_view name;
      RopeScaling::Kind kind;
    };
    using Kind = RopeScaling::Kind;
    static constexpr Known kKnown[] = {
        {"default", Kind::kNone},  {"linear", Kind::kLinear},      {"dynamic", Kind::kDynamic},
        {"llama3", Kind::kLlama3}, {"yarn", Kind::kYarn},          {"longrope", Kind::kLongRope},
        {"su", Kind::kLongRope},   {"deepseek_yarn", Kind::kYarn}, {"proportional", Kind::kLinear},
        {"mrope", Kind::kNone}};  // three positions, which of text are one (Qwen2-VL)
    // Hunyuan's files call a larger base so: what they say of it is `alpha`.
    HR_ASSIGN_OR_RETURN(const double alpha, number_or(parameters, "alpha", 0));
    if (type->as_string() == "dynamic" && alpha > 0) return stretch_base(alpha);
    for (const Known& known : kKnown) {
      if (known.name != type->as_string()) continue;
      const std::string_view own = config_.architecture;
      if (known.name == "proportional" && own != "gemma4" && own != "lfm3") continue;
      config_.rope_scaling.kind = known.kind;
      return known.kind == Kind::kNone ? ok_status() : read_scaling_numbers(parameters);
    }
    return source_.unsupported_field(
        name, fmt::format("rope type \"{}\" is not supported (known: default, linear, dynamic, "
                          "llama3, yarn, longrope)",
                          printable(type->as_string())));
  }

  // Phi-3.5-MoE's, of long texts and of short ones: one number in all of its files.
  Status read_mscales(const Json& parameters) {
    HR_ASSIGN_OR_RETURN(const double of_short, number_or(parameters, "short_mscale", 0));
    HR_ASSIGN_OR_RETURN(const double of_long, number_or(parameters, "long_mscale", of_short));
    if (of_short == of_long) {
      if (of_short > 0) config_.rope_scaling.attention_factor = of_short;
      return ok_status();
    }
    return source_.unsupported_field("long_mscale", "is not supported, only short_mscale's number");
  }

  Status stretch_base(double alpha) {
    const double dim =
        config_.head_dim != 0 ? config_.head_dim : config_.hidden / std::max(config_.heads, 1);
    config_.rope_theta *= std::pow(alpha, dim / (dim - 2));
    if (dim > 2 && config_.rope_theta >= 1 && config_.rope_theta <= 1e12) return ok_status();
    return source_.corrupt_field("alpha", fmt::format("{} gives no base of a rotation", alpha));
  }

  Status read_scaling_numbers(const Json& parameters) {
    RopeScaling& scaling = config_.rope_scaling;
    struct Number {
      std::string_view name;
      double* value;
    };
    const Number numbers[] = {{"factor", &scaling.factor},
                              {"attention_factor", &scaling.attention_factor},
                              {"low_freq_factor", &scaling.low_freq_factor},
                              {"high_freq_factor", &scaling.high_freq_factor},
                              {"beta_fast", &scaling.beta_fast},
                              {"beta_slow", &scaling.beta_slow},
                              {"mscale", &scaling.mscale},
                              {"mscale_all_dim", &scaling.mscale_all_dim}};
    for (const Number& number : numbers) {
      HR_ASSIGN_OR_RETURN(*number.value, number_or(parameters, number.name, *number.value));
    }
    HR_RETURN_IF_ERROR(read_mscales(parameters));
    HR_ASSIGN_OR_RETURN(scaling.truncate, flag_or(parameters, "truncate", true));
    HR_RETURN_IF_ERROR(read_factors(parameters, "short_factor", scaling.short_factors));
    HR_RETURN_IF_ERROR(read_factors(parameters, "long_factor", scaling.long_factors));
    // Phi-3 has it beside the object; where neither says it, it is the context itself.
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    const int32_t assumed =
        scaling.original_context > 0 ? scaling.original_context : config_.context_length;
    HR_ASSIGN_OR_RETURN(const int32_t inside, length_or(parameters, kOriginal, assumed));
    HR_ASSIGN_OR_RETURN(scaling.original_context, length_or(json_, kOriginal, inside));
    if (scaling.kind == RopeScaling::Kind::kYarn && said_member(parameters, "factor") == nullptr) {
      scaling.factor = double{1} * config_.context_length / std::max(1, scaling.original_context);
    }
    if (scaling.kind == RopeScaling::Kind::kLongRope && scaling.short_factors.empty()) {
      return source_.corrupt_field("short_factor", "missing");
    }
    return ok_status();
  }

  Status read_factors(const Json& parameters, std::string_view name,
                      std::vector<double>& factors) const {
    const Json* list = said_member(parameters, name);
    if (list == nullptr) return ok_status();
    if (!list->is_array()) return wrong_type(name, *list, "a list of numbers");
    if (list->as_array().size() > static_cast<size_t>(kModelLimits.head_dim_max)) {
      return source_.corrupt_field(name, "too many numbers");
    }
    for (const Json& factor : list->as_array()) {
      if (!factor.is_number()) return wrong_type(name, factor, "a list of numbers");
      factors.push_back(factor.as_double());
    }
    return ok_status();
  }

  // ---- lists of layers ----

  Status read_window() {
    // Qwen and SmolLM3 name a window and have a switch for it, off by default.
    const bool has_switch = config_.architecture.starts_with("qwen") ||
                            config_.architecture == "smollm3" ||
                            find("use_sliding_window") != nullptr;
    HR_ASSIGN_OR_RETURN(const bool on, flag_or(json_, "use_sliding_window", !has_switch));
    if (!on) config_.window = 0;
    if (config_.window == 0) return ok_status();
    // Whatever layer_types says.
    for (const std::string_view own : {"qwen3moe", "minimax-01", "lfm3", "step35", "deepseek4"}) {
      if (config_.architecture == own) return ok_status();
    }
    if (find("layer_types") != nullptr) return read_layer_types();
    return read_sliding_rule();
  }

  Status read_layer_types() {
    const Json& types = *find("layer_types");
    HR_ASSIGN_OR_RETURN(const auto entries,
                        entries_of_layers(types, source_, "layer_types", config_));
    for (const Json& type : entries) {
      if (!type.is_string()) return wrong_type("layer_types", type, "a list of names");
      const bool sliding = type.as_string() == "sliding_attention";
      if (!sliding && type.as_string() != "full_attention") {
        return source_.unsupported_field(
            "layer_types",
            fmt::format("\"{}\" is not supported (known: full_attention, sliding_attention)",
                        printable(type.as_string())));
      }
      config_.sliding_layers.push_back(sliding);
    }
    return ok_status();
  }

  // Files without layer_types: every layer from max_window_layers on (of Qwen2's mixtures each
  // second one before it), or all but each n-th.
  Status read_sliding_rule() {
    if (!config_.sliding_layers.empty()) return ok_status();  // by a rule of the family
    if (config_.architecture.starts_with("qwen") || find("max_window_layers") != nullptr) {
      const bool sees = source_.family->hf_classes.front() == "Qwen2VLForConditionalGeneration";
      HR_ASSIGN_OR_RETURN(const int32_t first,
                          length_or(json_, "max_window_layers", sees ? 80 : 28));
      const bool before = config_.architecture == "qwen2moe";
      for (int32_t i = 0; i < config_.layers; ++i) {
        config_.sliding_layers.push_back(before ? i < first && i % 2 == 0 : i >= first);
      }
      return ok_status();
    }
    for (const std::string_view name :
         {"sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"}) {
      HR_ASSIGN_OR_RETURN(const int32_t period, length_or(json_, name, 0));
      if (period == 0) continue;
      for (int32_t i = 0; i < config_.layers; ++i) {
        config_.sliding_layers.push_back((i + 1) % period != 0);
      }
      break;
    }
    return ok_status();
  }

  // SmolLM3: 1 where a layer rotates.
  Status read_rope_layers() {
    constexpr std::string_view kList = "no_rope_layers";
    if (const Json* list = find(kList)) {
      HR_ASSIGN_OR_RETURN(const auto entries, entries_of_layers(*list, source_, kList, config_));
      for (const Json& rotates : entries) {
        if (!rotates.is_int()) return wrong_type(kList, rotates, "a list of integers");
        config_.rope_layers.push_back(rotates.as_int() != 0);
      }
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(const int32_t period, length_or(json_, "no_rope_layer_interval", 0));
    for (int32_t i = 0; period > 0 && i < config_.layers; ++i) {
      config_.rope_layers.push_back((i + 1) % period != 0);
    }
    return ok_status();
  }

  // ---- layers that do not attend ----

  // By name, or all but each n-th (Qwen3-Next's first files), or all but those listed (LFM2's).
  Status read_mixers() {
    if (!source_.family->other_mixer || !config_.mixers.by_layer.empty()) return ok_status();
    if (has_state_space(*source_.family)) return read_state_space(json_, source_, config_);
    const LayerMixer other = *source_.family->other_mixer;
    if (other == LayerMixer::kRgLru) return read_recurrent_gemma(json_, source_, config_);
    if (other == LayerMixer::kKimiDelta) return read_kimi_linear(json_, source_, config_);
    if (other == LayerMixer::kLightning) return read_minimax(json_, source_, config_);
    if (other == LayerMixer::kRwkv7) return read_rwkv7(json_, source_, config_);
    if (const Json* types = find("layer_types")) return read_mixer_types(*types, other);
    if (const Json* listed = find("full_attn_idxs")) return read_attending_layers(*listed, other);
    HR_ASSIGN_OR_RETURN(const int32_t period, length_or(json_, "full_attention_interval",
                                                        other == LayerMixer::kDeltaNet ? 4 : 1));
    if (period == 0) return source_.corrupt_field("full_attention_interval", "0 is no period");
    for (int32_t i = 0; i < config_.layers; ++i) {
      config_.mixers.by_layer.push_back((i + 1) % period == 0 ? LayerMixer::kAttention : other);
    }
    return ok_status();
  }

  Status read_mixer_types(const Json& types, LayerMixer other) {
    HR_ASSIGN_OR_RETURN(const auto entries,
                        entries_of_layers(types, source_, "layer_types", config_));
    const std::string_view name = other == LayerMixer::kShortConv ? "conv" : "linear_attention";
    for (const Json& type : entries) {
      if (!type.is_string()) return wrong_type("layer_types", type, "a list of names");
      if (type.as_string() != name && type.as_string() != "full_attention") {
        return source_.unsupported_field(
            "layer_types", fmt::format("\"{}\" is not supported (known: full_attention, {})",
                                       printable(type.as_string()), name));
      }
      config_.mixers.by_layer.push_back(type.as_string() == name ? other : LayerMixer::kAttention);
    }
    return ok_status();
  }

  Status read_attending_layers(const Json& listed, LayerMixer other) {
    constexpr std::string_view kList = "full_attn_idxs";
    if (!listed.is_array()) return wrong_type(kList, listed, "a list of layers");
    config_.mixers.by_layer.assign(static_cast<size_t>(config_.layers), other);
    for (const Json& layer : listed.as_array()) {
      if (!layer.is_int()) return wrong_type(kList, layer, "a list of integers");
      if (layer.as_int() < 0 || layer.as_int() >= config_.layers) {
        return source_.corrupt_field(
            kList, fmt::format("{} is none of {} layers", layer.as_int(), config_.layers));
      }
      config_.mixers.by_layer[static_cast<size_t>(layer.as_int())] = LayerMixer::kAttention;
    }
    return ok_status();
  }

  // LFM2's files name a width of which the network has two thirds, rounded up.
  Status adjust_ffn() {
    if (config_.architecture != "lfm2") return ok_status();
    HR_ASSIGN_OR_RETURN(config_.ffn, length_or(json_, "block_ff_dim", config_.ffn));
    HR_ASSIGN_OR_RETURN(const bool adjusts, flag_or(json_, "block_auto_adjust_ff_dim", true));
    if (adjusts) {
      HR_ASSIGN_OR_RETURN(const double scale, number_or(json_, "block_ffn_dim_multiplier", 1));
      HR_ASSIGN_OR_RETURN(const int32_t multiple, length_or(json_, "block_multiple_of", 256));
      if (!(scale > 0 && scale <= 64) || multiple < 1 || multiple > kModelLimits.ffn_max) {
        return source_.corrupt_field(
            "block_ffn_dim_multiplier",
            fmt::format("{} and block_multiple_of {} are no width", scale, multiple));
      }
      const int64_t two_thirds = int64_t{2} * config_.ffn / 3;
      const auto scaled = static_cast<int64_t>(scale * static_cast<double>(two_thirds));
      config_.ffn = static_cast<int32_t>(std::min<int64_t>(
          (scaled + multiple - 1) / multiple * multiple, int64_t{kModelLimits.ffn_max} + 1));
    }
    if (config_.ffn >= 1 && config_.ffn <= kModelLimits.ffn_max) return ok_status();
    return source_.corrupt_field(
        "intermediate_size",
        fmt::format("a width of {} is outside 1 to {}", config_.ffn, kModelLimits.ffn_max));
  }

  Status read_end_ids() {
    constexpr std::string_view kField = "eos_token_id";
    for (const Json* json : {&json_, &outer_, &generation_}) {
      const Json* member = said_member(*json, kField);
      if (member == nullptr) continue;
      const Json::Array list = member->is_array() ? member->as_array() : Json::Array{*member};
      std::vector<int64_t> ids;
      for (const Json& id : list) {
        if (!id.is_int()) return wrong_type(kField, id, "an integer or a list of integers");
        ids.push_back(id.as_int());
      }
      HR_RETURN_IF_ERROR(set_end_ids(source_, kField, ids, config_));
    }
    return ok_status();
  }

  const Json& json_;
  const Json& outer_;
  const Json& generation_;
  const ConfigSource source_;
  const HfClassUse use_;
  ModelConfig config_;
};

}  // namespace

Result<ModelConfig> model_config_from_json(const Json& config, const Json& generation,
                                           std::string_view path) {
  HR_ASSIGN_OR_RETURN(const std::string hf_class, read_class(config, path));
  // Models that also see keep their text model's numbers in an object of their own.
  const Json* const text = said_member(config, "text_config");
  const ConfigSource source{
      path, find_hf_family(generating_hf_class(class_of_text(hf_class, config, text)))};
  if (is_encoder_class(hf_class)) {
    return source.unsupported_field(
        "architectures",
        fmt::format("\"{}\" is an encoder, which generates no text: headrace serve answers "
                    "/v1/embeddings with it",
                    printable(hf_class)));
  }
  if (source.family == nullptr) {
    return source.unsupported_field(
        "architectures",
        fmt::format("\"{}\" is not supported (known: {}; or try --architecture-map)",
                    printable(hf_class), known_hf_classes()));
  }
  if (text != nullptr && !text->is_object()) {
    return source.corrupt_field("text_config", "is no object");
  }
  const Json read = without_unread_keys(*source.family, text == nullptr ? config : *text);
  return JsonConfigReader(read, config, generation, source, hf_class_use(hf_class)).read();
}

}  // namespace headrace
