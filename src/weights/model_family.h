// What the two readers of configurations know of each architecture: what it is called, which
// numbers its files give under which keys, and what a Hugging Face class assumes where its
// config.json is silent. How an architecture computes is in models/.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "weights/model_config.h"

namespace headrace {

using ConfigMember =
    std::variant<int32_t ModelConfig::*, float ModelConfig::*, double ModelConfig::*,
                 int32_t ExpertConfig::*, float ExpertConfig::*, int32_t MixerConfig::*,
                 float MixerConfig::*, int32_t LatentConfig::*, int32_t BlockIndexConfig::*,
                 int32_t StateSpaceConfig::*, int32_t RwkvConfig::*, int32_t GemmaConfig::*,
                 float GemmaConfig::*, float AddedScales::*, int32_t HeadSizes::*,
                 float HeadSizes::*, float DeltaRuleConfig::*, int32_t OutputHead::*>;

// visit(value) with the number of `config` that `member` is.
template <class Config, class Visit>
decltype(auto) visit_member(Config& config, ConfigMember member, const Visit& visit) {
  return std::visit(
      [&](auto of) -> decltype(auto) {
        if constexpr (requires { config.*of; }) {
          return visit(config.*of);
        } else if constexpr (requires { config.experts.*of; }) {
          return visit(config.experts.*of);
        } else if constexpr (requires { config.head.*of; }) {
          return visit(config.head.*of);
        } else if constexpr (requires { config.mixers.latent.*of; }) {
          return visit(config.mixers.latent.*of);
        } else if constexpr (requires { config.mixers.minimax.block_index.*of; }) {
          return visit(config.mixers.minimax.block_index.*of);
        } else if constexpr (requires { config.mixers.state_space.*of; }) {
          return visit(config.mixers.state_space.*of);
        } else if constexpr (requires { config.mixers.rwkv.*of; }) {
          return visit(config.mixers.rwkv.*of);
        } else if constexpr (requires { config.mixers.gemma.*of; }) {
          return visit(config.mixers.gemma.*of);
        } else if constexpr (requires { config.mixers.minimax.added.*of; }) {
          return visit(config.mixers.minimax.added.*of);
        } else if constexpr (requires { config.mixers.head_sizes.*of; }) {
          return visit(config.mixers.head_sizes.*of);
        } else if constexpr (requires { config.mixers.delta.*of; }) {
          return visit(config.mixers.delta.*of);
        } else {
          return visit(config.mixers.*of);
        }
      },
      member);
}

enum class Presence {
  kRequired,  // in both formats, unless the Hugging Face class has a default
  kOptional,  // absent: the member keeps its default
  kNullable,  // as optional; null in a config.json means 0
};

// One number of a configuration.
struct ConfigField {
  ConfigMember member;
  std::string_view gguf;  // the key after "<architecture>."; empty: GGUF files have none
  std::string_view hf;    // the key of config.json; empty: it has none
  double min = 0;
  double max = 0;
  Presence presence = Presence::kOptional;

  bool is_whole() const {
    return std::holds_alternative<int32_t ModelConfig::*>(member) ||
           std::holds_alternative<int32_t ExpertConfig::*>(member) ||
           std::holds_alternative<int32_t MixerConfig::*>(member) ||
           std::holds_alternative<int32_t LatentConfig::*>(member) ||
           std::holds_alternative<int32_t BlockIndexConfig::*>(member) ||
           std::holds_alternative<int32_t StateSpaceConfig::*>(member) ||
           std::holds_alternative<int32_t RwkvConfig::*>(member) ||
           std::holds_alternative<int32_t GemmaConfig::*>(member) ||
           std::holds_alternative<int32_t HeadSizes::*>(member) ||
           std::holds_alternative<int32_t OutputHead::*>(member);
  }
};

struct ModelFamily {
  std::string_view architecture;                     // GGUF's general.architecture
  std::span<const std::string_view> hf_classes;      // config.json's architectures[0]
  std::span<const std::string_view> hf_activations;  // names of the one activation it has
  // GGUF files hold the rows of q and k in the order of interleaved rotation.
  bool gguf_rows_interleaved = false;
  std::span<const ConfigField> fields;                 // beside common_fields()
  void (*hf_defaults)(ModelConfig& config) = nullptr;  // what the class assumes
  // The largest activations that are known of the family lie well below F16's largest number,
  // 65,504 (Qwen2.5 0.5B: residual 2,183; Llama 2: 2,622), so that block types are computed in F16,
  // which rounds eight times finer than BF16 (docs/decisions/0017).
  bool activations_fit_f16 = false;
  // What layers are that do not attend; empty: all do.
  std::optional<LayerMixer> other_mixer = {};
  // Where a config.json does not say how wide networks are: so many times the hidden size. 0: it
  // must.
  int32_t ffn_factor = 0;

  bool has_experts() const;                   // whether its layers may be mixtures of experts
  bool reads_hf(std::string_view key) const;  // of config.json
};

// What a config.json says to the class of this family: without keys that other classes read and
// this one does not, whatever stands there, and with those of its own as the reader knows them.
Json without_unread_keys(const ModelFamily& family, const Json& json);

// Of the family of that architecture; false for one that is not known.
bool activations_fit_f16(const ModelConfig& config);

// Numbers that every architecture has.
std::span<const ConfigField> common_fields();

std::span<const ModelFamily> model_families();
// kUnsupported naming the architecture or class, and those that are known.
Result<const ModelFamily*> find_gguf_family(const GgufFile& file);
// ModelConfig::architecture of files of that name.
std::string_view architecture_of_gguf(std::string_view name);
const ModelFamily* find_hf_family(std::string_view hf_class);

// What a class of config.json is made for.
enum class HfClassUse : uint8_t { kGenerate, kEmbed, kClassify };
// Of a decoder: "Qwen3ForCausalLM" or "GPT2LMHeadModel" generates, "Qwen3Model" is the same without
// its output matrix, "Qwen3ForSequenceClassification" has a row for each class instead.
HfClassUse hf_class_use(std::string_view hf_class);
// The class of the same decoder that generates.
std::string generating_hf_class(std::string_view hf_class);
std::string known_hf_classes();

// A file being read, whatever its format: what the checks need for their messages.
struct ConfigSource {
  std::string_view file;
  const ModelFamily* family = nullptr;
  bool gguf = false;

  Status corrupt_field(std::string_view field, std::string_view what) const;
  Status unsupported_field(std::string_view field, std::string_view what) const;
  // "llama.attention.head_count" or "num_attention_heads".
  std::string name_of(const ConfigField& field) const;
  std::string name_of(ConfigMember member) const;
};

// Checks a value against its field's bounds and stores it.
Status set_field(const ConfigSource& source, const ConfigField& field, double value,
                 ModelConfig& config);
// The field's member is unset and must not be.
bool is_missing(const ConfigField& field, const ModelConfig& config);

// After all fields are read: derives head_dim, kv_heads and rope_dim where the file does not say
// them, and what it leaves out of its experts, then checks the relations between sizes.
Status finish_config(const ConfigSource& source, ModelConfig& config);

Status set_end_ids(const ConfigSource& source, std::string_view field, std::span<const int64_t> ids,
                   ModelConfig& config);

}  // namespace headrace
