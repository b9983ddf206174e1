#include "weights/model_family.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "weights/deepseek4_family.h"
#include "weights/gpt_families.h"
#include "weights/inkling_family.h"
#include "weights/mamba_families.h"

namespace headrace {
namespace {

// ---- checks
// --------------------------------------------------------------------------------------

// The size of a head where a file does not say it.
Status derive_head_dim(const ConfigSource& source, ModelConfig& config) {
  if (config.hidden % config.heads != 0) {
    return source.corrupt_field(
        source.name_of(&ModelConfig::heads),
        fmt::format("{} heads do not divide the hidden size {} ({})", config.heads, config.hidden,
                    source.name_of(&ModelConfig::hidden)));
  }
  config.head_dim = config.hidden / config.heads;
  if (config.head_dim <= kModelLimits.head_dim_max) return ok_status();
  return source.corrupt_field(
      source.name_of(&ModelConfig::head_dim),
      fmt::format("{} is outside 1 to {}", config.head_dim, kModelLimits.head_dim_max));
}

// A file of a model of which no layer attends says nothing of heads, or 0.
Status check_head_counts(const ConfigSource& source, ModelConfig& config) {
  if (!any_attends(config)) {
    config.heads = config.kv_heads = 1;
    config.head_dim = config.rope_dim = 2;
  }
  const bool has_dense = config.experts.count == 0 && !config.mixers.one_part;
  for (const auto& [member, missing, most] :
       {std::tuple(&ModelConfig::heads, config.heads == 0, kModelLimits.heads_max),
        std::tuple(&ModelConfig::ffn, config.ffn == 0 && has_dense, kModelLimits.ffn_max)}) {
    if (!missing) continue;
    return source.corrupt_field(source.name_of(member), fmt::format("0 is outside 1 to {}", most));
  }
  return ok_status();
}

Status check_head_sizes(const ConfigSource& source, const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return source.corrupt_field(source.name_of(&ModelConfig::kv_heads),
                                fmt::format("{} key/value heads do not divide {} query heads",
                                            config.kv_heads, config.heads));
  }
  if (config.head_dim % 2 != 0) {
    return source.corrupt_field(source.name_of(&ModelConfig::head_dim),
                                fmt::format("head size {} is odd", config.head_dim));
  }
  if (config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim || config.rope_dim < 2) {
    return source.corrupt_field(
        source.gguf ? source.name_of(&ModelConfig::rope_dim) : "partial_rotary_factor",
        fmt::format("{} rotated dimensions: must be even and at most the head size {}",
                    config.rope_dim, config.head_dim));
  }
  return ok_status();
}

// Width of experts where a file does not say it, then the relations between their numbers.
Status finish_experts(const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  if (experts.count == 0) return ok_status();
  if (experts.width == 0) experts.width = config.ffn;
  if (experts.shared_width == 0) {
    const int64_t shared = int64_t{experts.shared_count} * experts.width;
    if (shared > kModelLimits.ffn_max) {
      return source.corrupt_field(
          source.name_of(&ExpertConfig::shared_count),
          fmt::format("{} experts of width {} are wider than {}", experts.shared_count,
                      experts.width, kModelLimits.ffn_max));
    }
    experts.shared_width = static_cast<int32_t>(shared);
  }
  if (experts.scale == 0) experts.scale = 1;  // some writers' "none"
  const int32_t all = experts.count + experts.identities;
  if (experts.used < 1 || experts.used > all) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::used),
        fmt::format("{} is outside 1 to the {} experts", experts.used, all));
  }
  experts.groups = std::max(experts.groups, 1);
  if (all % experts.groups != 0) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::groups),
        fmt::format("{} groups do not divide {} experts", experts.groups, all));
  }
  experts.groups_used = std::max(experts.groups_used, 1);
  if (experts.groups_used > experts.groups ||
      experts.used > all / experts.groups * experts.groups_used) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::groups_used),
        fmt::format("{} of {} groups of {} experts have no {} to choose", experts.groups_used,
                    experts.groups, all / experts.groups, experts.used));
  }
  return ok_status();
}

// Sizes of heads that share a latent: of these, what is rotated is a head of its own.
Status finish_latent(const ConfigSource& source, ModelConfig& config) {
  LatentConfig& latent = config.mixers.latent;
  if (latent.rank == 0) return ok_status();
  if (latent.key_dim == 0) latent.key_dim = latent.plain_dim + latent.rope_dim;
  latent.plain_dim = latent.key_dim - latent.rope_dim;
  if (latent.rope_dim < 2 || latent.rope_dim % 2 != 0) {
    return source.corrupt_field(
        source.gguf ? "rope.dimension_count" : "qk_rope_head_dim",
        fmt::format("{} is no even number of rotated components of a head", latent.rope_dim));
  }
  if (latent.plain_dim < 1 || latent.value_dim < 1 ||
      latent.rank + latent.rope_dim > kModelLimits.head_dim_max) {
    return source.corrupt_field(
        source.name_of(&LatentConfig::rank),
        fmt::format("a latent of {} with heads of {} + {} (rotated) and values of {} is none",
                    latent.rank, latent.plain_dim, latent.rope_dim, latent.value_dim));
  }
  config.kv_heads = config.heads;
  config.head_dim = config.rope_dim = latent.rope_dim;
  if (config.qkv_bias || config.attention_out_bias) {
    return source.unsupported_field(source.gguf ? "tensor attn_output.bias" : "attention_bias",
                                    "biases of latent attention are not supported");
  }
  return ok_status();
}

// Where layers keep states.
Status check_mixers(const ConfigSource& source, const ModelConfig& config) {
  const MixerConfig& mixers = config.mixers;
  if (mixers.key_heads == 0 || mixers.value_heads % mixers.key_heads == 0) return ok_status();
  return source.corrupt_field(source.name_of(&MixerConfig::value_heads),
                              fmt::format("{} key heads do not divide {} value heads",
                                          mixers.key_heads, mixers.value_heads));
}

Status check_rope_scaling(const ConfigSource& source, const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const std::string field =
      source.gguf ? fmt::format("{}.rope.scaling", source.family->architecture) : "rope_scaling";
  using Kind = RopeScaling::Kind;
  const auto bad = [&](std::string_view what) { return source.corrupt_field(field, what); };
  if (!(scaling.factor >= 1 && scaling.factor <= 1e6)) {
    return bad(fmt::format("factor {} is not between 1 and 1e6", scaling.factor));
  }
  if (!(scaling.attention_factor >= 0 && scaling.attention_factor <= 1e3)) {
    return bad(
        fmt::format("attention factor {} is not between 0 and 1000", scaling.attention_factor));
  }
  const bool needs_original = scaling.kind == Kind::kLlama3 || scaling.kind == Kind::kYarn ||
                              scaling.kind == Kind::kLongRope;
  if (needs_original && (scaling.original_context < 2 ||
                         scaling.original_context > kModelLimits.context_length_max)) {
    return bad(fmt::format("original context length {} is outside 2 to {}",
                           scaling.original_context, kModelLimits.context_length_max));
  }
  if (scaling.kind == Kind::kLlama3 &&
      !(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor &&
        scaling.high_freq_factor < 1e6)) {
    return bad(fmt::format("frequency factors {} and {} are no range", scaling.low_freq_factor,
                           scaling.high_freq_factor));
  }
  if (scaling.kind == Kind::kYarn &&
      !(scaling.beta_slow > 0 && scaling.beta_fast >= scaling.beta_slow &&
        scaling.beta_fast < 1e6 && std::abs(scaling.mscale) < 1e3 &&
        std::abs(scaling.mscale_all_dim) < 1e3)) {
    return bad("beta_fast, beta_slow or mscale out of range");
  }
  const auto length = static_cast<size_t>(config.rope_dim / 2);
  for (const auto* factors : {&scaling.short_factors, &scaling.long_factors}) {
    if (factors->empty()) continue;
    if (factors->size() != length) {
      return bad(fmt::format("{} factors for {} frequencies", factors->size(), length));
    }
    for (const double factor : *factors) {
      if (!(factor > 0 && factor < 1e9)) return bad(fmt::format("factor {}", factor));
    }
  }
  if (scaling.short_factors.size() != scaling.long_factors.size()) {
    return bad("short and long factors differ in number");
  }
  return ok_status();
}

}  // namespace

bool activations_fit_f16(const ModelConfig& config) {
  // Mixtral is "llama" in files, and no row's word is of mixtures.
  return config.experts.count == 0 &&
         std::ranges::any_of(model_families(), [&](const ModelFamily& family) {
           return family.architecture == config.architecture && family.activations_fit_f16;
         });
}

namespace {

// Names that GGUF files alone have of a class, whose keys begin with them, and what the model is:
// as text those that see are what they are made of; of Nemotron-H's mixtures tensors have other
// names.
struct GgufOnlyName {
  std::string_view name, hf_class, architecture;
};
constexpr GgufOnlyName kGgufOnlyNames[] = {
    {"nemotron_h_moe", "NemotronHForCausalLM", "nemotron_h_moe"},
    {"qwen2vl", "Qwen2VLForConditionalGeneration", "qwen2"},
    {"qwen3vl", "Qwen3VLForConditionalGeneration", "qwen3"}};

const ModelFamily* find_gguf_only_family(std::string_view architecture) {
  static const std::vector<ModelFamily> kFamilies = [&] {
    std::vector<ModelFamily> families;
    for (const GgufOnlyName& of : kGgufOnlyNames) {
      families.push_back(*find_hf_family(of.hf_class));
      families.back().architecture = of.name;
    }
    return families;
  }();
  const auto found = std::ranges::find(kFamilies, architecture, &ModelFamily::architecture);
  return found == kFamilies.end() ? nullptr : &*found;
}

}  // namespace

std::string_view architecture_of_gguf(std::string_view name) {
  const auto* const found = std::ranges::find(kGgufOnlyNames, name, &GgufOnlyName::name);
  return found == std::end(kGgufOnlyNames) ? name : found->architecture;
}

Result<const ModelFamily*> find_gguf_family(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const std::string_view name, file.require_string("general.architecture"));
  std::string known;
  std::string_view last;
  for (const ModelFamily& family : model_families()) {
    if (family.architecture == name) return &family;
    if (family.architecture != last && !has_no_gguf(family.architecture)) {
      known += (known.empty() ? "" : ", ") + std::string(family.architecture);
    }
    last = family.architecture;
  }
  if (const ModelFamily* family = find_gguf_only_family(name)) return family;
  return file.unsupported_field(
      "general.architecture",
      fmt::format("\"{}\" is not supported (known: {})", printable(name), known));
}

const ModelFamily* find_hf_family(std::string_view hf_class) {
  for (const ModelFamily& family : model_families()) {
    for (const std::string_view name : family.hf_classes) {
      if (name == hf_class) return &family;
    }
  }
  return nullptr;
}

namespace {

constexpr std::string_view kGeneratingEnd = "ForCausalLM";
constexpr std::string_view kOldGeneratingEnd = "LMHeadModel";  // GPT-2's
constexpr struct {
  std::string_view end;
  HfClassUse use;
} kHeadlessEnds[] = {
    {"ForSequenceClassification", HfClassUse::kClassify},
    {"TextModel", HfClassUse::kEmbed},  // Gemma3TextModel
    {"Model", HfClassUse::kEmbed},
};

// Of an output matrix that has fewer rows than the embedding.
Status check_outputs(const ConfigSource& source, const ModelConfig& config) {
  const std::string name = source.name_of(&OutputHead::tokens);
  if (config.head.tokens > config.vocab) {
    return source.corrupt_field(name,
                                fmt::format("{} of {} tokens", config.head.tokens, config.vocab));
  }
  const bool fewer = config.head.tokens > 0 && config.head.tokens < config.vocab;
  if (!fewer || !config.head.matrix || !config.tied_embeddings) return ok_status();
  return source.unsupported_field(name, "is not supported beside tie_word_embeddings");
}

}  // namespace

HfClassUse hf_class_use(std::string_view hf_class) {
  if (hf_class.ends_with(kOldGeneratingEnd)) return HfClassUse::kGenerate;
  for (const auto& row : kHeadlessEnds) {
    if (hf_class.ends_with(row.end)) return row.use;
  }
  return HfClassUse::kGenerate;
}

std::string generating_hf_class(std::string_view hf_class) {
  if (hf_class.ends_with(kOldGeneratingEnd)) return std::string(hf_class);
  for (const auto& row : kHeadlessEnds) {
    if (!hf_class.ends_with(row.end)) continue;
    const std::string stem(hf_class.substr(0, hf_class.size() - row.end.size()));
    const std::string old = stem + std::string(kOldGeneratingEnd);
    return find_hf_family(old) != nullptr ? old : stem + std::string(kGeneratingEnd);
  }
  return std::string(hf_class);
}

bool ModelFamily::has_experts() const {
  return std::any_of(fields.begin(), fields.end(), [](const ConfigField& field) {
    return field.member == ConfigMember(&ExpertConfig::count);
  });
}

Json without_unread_keys(const ModelFamily& family, const Json& json) {
  struct Unread {
    std::string_view hf_class;
    std::array<std::string_view, 16> keys;
  };
  static constexpr Unread kUnread[] = {
      {"InternLM3ForCausalLM", {"sliding_window", "use_sliding_window"}},
      {"IQuestCoderForCausalLM", {"sliding_window"}},
      {"SarvamMoEForCausalLM", {"sliding_window", "use_sliding_window", "use_bias"}},
      {"Zamba2ForCausalLM", {"sliding_window", "use_sliding_window", "time_step_limit"}},
      {"Qwen3VLForConditionalGeneration", {"sliding_window", "use_sliding_window"}},
      {"FlintForCausalLM", {"use_sliding_window", "max_window_layers"}},
      {"Lfm3ForCausalLM", {"use_sliding_window"}},
      {"DeepseekV4ForCausalLM",
       {"num_key_value_heads", "n_shared_experts", "norm_topk_prob", "n_group", "topk_group",
        "topk_method", "first_k_dense_replace", "moe_layer_freq", "mlp_only_layers",
        "decoder_sparse_step", "moe_layer_interval", "moe_layer_end_index", "attention_bias",
        "use_sliding_window", "max_window_layers", "rotary_dim"}},
      {"LongcatFlashForCausalLM",
       {"norm_topk_prob", "mlp_only_layers", "decoder_sparse_step", "moe_layer_interval",
        "moe_layer_end_index", "mlp_layer_types"}},
      {"Qwen4ExpForCausalLM",
       {"use_sliding_window", "sliding_window", "mlp_only_layers", "decoder_sparse_step",
        "moe_layer_interval", "moe_layer_end_index", "mlp_layer_types", "rotary_dim",
        "query_pre_attn_scalar"}},
      {"ApertusForCausalLM",
       {"use_sliding_window", "sliding_window", "rotary_dim", "query_pre_attn_scalar"}},
      {"Apertus1p5TextForCausalLM",
       {"use_sliding_window", "sliding_window", "rotary_dim", "query_pre_attn_scalar"}},
      {"Kolibri1ForCausalLM",
       {"use_sliding_window", "max_window_layers", "mlp_only_layers", "decoder_sparse_step",
        "moe_layer_interval", "moe_layer_end_index", "mlp_layer_types"}}};
  if (family.architecture == "inkling") return inkling_spelling(json);
  const auto row = std::ranges::find(kUnread, family.hf_classes.front(), &Unread::hf_class);
  if (row == std::end(kUnread) || !json.is_object()) return json;
  Json read = Json::object();
  for (const auto& [key, value] : json.as_object()) {
    if (std::ranges::find(row->keys, key) == row->keys.end()) read.set(key, value);
  }
  return family.architecture == "deepseek4" ? deepseek4_spelling(read) : read;
}

bool ModelFamily::reads_hf(std::string_view key) const {
  return std::ranges::any_of(fields, [&](const ConfigField& field) { return field.hf == key; });
}

std::string known_hf_classes() {
  std::string known;
  for (const ModelFamily& family : model_families()) {
    for (const std::string_view name : family.hf_classes) {
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  return known;
}

Status ConfigSource::corrupt_field(std::string_view field, std::string_view what) const {
  return corrupt(fmt::format("{}: {}: {}", file, field, what), std::string(field));
}
Status ConfigSource::unsupported_field(std::string_view field, std::string_view what) const {
  return unsupported(fmt::format("{}: {}: {}", file, field, what), std::string(field));
}
std::string ConfigSource::name_of(const ConfigField& field) const {
  return gguf ? fmt::format("{}.{}", family->architecture, field.gguf) : std::string(field.hf);
}
std::string ConfigSource::name_of(ConfigMember member) const {
  for (const auto fields : {family->fields, common_fields()}) {
    for (const ConfigField& field : fields) {
      const bool has_name = !(gguf ? field.gguf : field.hf).empty();
      if (field.member == member && has_name) return name_of(field);
    }
  }
  return "configuration";
}

Status set_field(const ConfigSource& source, const ConfigField& field, double value,
                 ModelConfig& config) {
  const bool whole = field.is_whole();
  if (!(value >= field.min && value <= field.max)) {  // NaN fails it too
    return source.corrupt_field(
        source.name_of(field),
        whole ? fmt::format("{:.0f} is outside {:.0f} to {:.0f}", value, field.min, field.max)
              : fmt::format("{} is not between {} and {}", value, field.min, field.max));
  }
  visit_member(config, field.member,
               [&]<class Value>(Value& member) { member = static_cast<Value>(value); });
  return ok_status();
}

bool is_missing(const ConfigField& field, const ModelConfig& config) {
  return field.presence == Presence::kRequired &&
         visit_member(config, field.member, [](const auto& value) { return value == 0; });
}

Status finish_config(const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(check_outputs(source, config));
  HR_RETURN_IF_ERROR(finish_latent(source, config));
  HR_RETURN_IF_ERROR(finish_state_space(source, config));
  HR_RETURN_IF_ERROR(check_head_counts(source, config));
  if (config.head_dim == 0) HR_RETURN_IF_ERROR(derive_head_dim(source, config));
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.rope_dim == 0) config.rope_dim = config.head_dim;
  HR_RETURN_IF_ERROR(check_head_sizes(source, config));
  HR_RETURN_IF_ERROR(finish_experts(source, config));
  HR_RETURN_IF_ERROR(check_mixers(source, config));
  HR_RETURN_IF_ERROR(check_rope_scaling(source, config));
  const bool dynamic = config.rope_scaling.kind == RopeScaling::Kind::kDynamic;
  config.context_length_max = static_cast<int32_t>(
      std::min<double>(config.context_length * (dynamic ? config.rope_scaling.factor : 1.0),
                       kModelLimits.context_length_max));
  return ok_status();
}

Status set_end_ids(const ConfigSource& source, std::string_view field, std::span<const int64_t> ids,
                   ModelConfig& config) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= config.vocab) {
      return source.corrupt_field(
          field, fmt::format("{} is no id of a vocabulary of {}", id, config.vocab));
    }
    config.end_ids.push_back(static_cast<int32_t>(id));
  }
  std::sort(config.end_ids.begin(), config.end_ids.end());
  config.end_ids.erase(std::unique(config.end_ids.begin(), config.end_ids.end()),
                       config.end_ids.end());
  return ok_status();
}

}  // namespace headrace
