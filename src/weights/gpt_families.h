// Of the table of architectures (model_family_table.cc) the families of GPT-2's time: the numbers
// that their files give under names of their own, what their classes assume, and the flags of a
// config.json that no later class has.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

namespace gpt_fields {
constexpr ConfigField kHidden{&ModelConfig::hidden, "", "n_embd", 1, kModelLimits.hidden_max};
constexpr ConfigField kLayers{&ModelConfig::layers, "", "n_layer", 1, kModelLimits.layers_max};
constexpr ConfigField kHeads{&ModelConfig::heads, "", "n_head", 1, kModelLimits.heads_max};
constexpr ConfigField kContext{&ModelConfig::context_length, "", "n_positions", 1,
                               kModelLimits.context_length_max};
constexpr ConfigField kFfn{&ModelConfig::ffn,  "", "n_inner", 1, kModelLimits.ffn_max,
                           Presence::kNullable};
constexpr ConfigField kEps{
    &ModelConfig::rms_eps, "attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-20, 1,
    Presence::kRequired};
}  // namespace gpt_fields

inline constexpr std::array kGpt2Fields{gpt_fields::kHidden, gpt_fields::kLayers,
                                        gpt_fields::kHeads,  gpt_fields::kContext,
                                        gpt_fields::kFfn,    gpt_fields::kEps};
inline constexpr std::array kGptNeoFields{
    ConfigField{&ModelConfig::layers, "", "num_layers", 1, kModelLimits.layers_max},
    ConfigField{&ModelConfig::heads, "", "num_heads", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::window, "", "window_size", 1, kModelLimits.context_length_max},
    gpt_fields::kEps};
inline constexpr std::array kOptFields{
    ConfigField{&ModelConfig::ffn, "", "ffn_dim", 1, kModelLimits.ffn_max}};
inline constexpr std::array kFalconFields{
    gpt_fields::kLayers,
    gpt_fields::kHeads,
    ConfigField{&ModelConfig::kv_heads, "", "n_head_kv", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::kv_heads, "", "num_kv_heads", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::ffn, "", "ffn_hidden_size", 1, kModelLimits.ffn_max},
    gpt_fields::kEps};
inline constexpr std::array kBloomFields{
    gpt_fields::kHidden,
    ConfigField{&ModelConfig::hidden, "", "n_embed", 1, kModelLimits.hidden_max},
    gpt_fields::kLayers,
    gpt_fields::kHeads,
    ConfigField{&ModelConfig::context_length, "", "seq_length", 1, kModelLimits.context_length_max},
    gpt_fields::kEps};
inline constexpr std::array kMptFields{
    ConfigField{&ModelConfig::hidden, "", "d_model", 1, kModelLimits.hidden_max},
    ConfigField{&ModelConfig::layers, "", "n_layers", 1, kModelLimits.layers_max},
    ConfigField{&ModelConfig::heads, "", "n_heads", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::context_length, "", "max_seq_len", 1,
                kModelLimits.context_length_max},
    ConfigField{&MixerConfig::alibi_bias_max, "attention.max_alibi_bias", "", 0, 1e3},
    gpt_fields::kEps};
inline constexpr std::array kCtrlFields{
    gpt_fields::kHidden,
    gpt_fields::kLayers,
    gpt_fields::kHeads,
    gpt_fields::kContext,
    ConfigField{&ModelConfig::ffn, "", "dff", 1, kModelLimits.ffn_max},
    gpt_fields::kEps};
inline constexpr std::array kXglmFields{
    ConfigField{&ModelConfig::hidden, "", "d_model", 4, kModelLimits.hidden_max},
    ConfigField{&ModelConfig::layers, "", "num_layers", 1, kModelLimits.layers_max},
    ConfigField{&ModelConfig::heads, "", "attention_heads", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::ffn, "", "ffn_dim", 1, kModelLimits.ffn_max}};
inline constexpr int32_t kGptFfnFactor = 4;

template <size_t kCount>
using ClassNames = std::array<std::string_view, kCount>;
inline constexpr ClassNames<1> kGpt2Classes{"GPT2LMHeadModel"};
inline constexpr ClassNames<1> kGptBigCodeClasses{"GPTBigCodeForCausalLM"};
inline constexpr ClassNames<1> kGptNeoClasses{"GPTNeoForCausalLM"};
inline constexpr ClassNames<1> kGptJClasses{"GPTJForCausalLM"};
inline constexpr ClassNames<1> kCodeGenClasses{"CodeGenForCausalLM"};
inline constexpr ClassNames<1> kOptClasses{"OPTForCausalLM"};
inline constexpr ClassNames<1> kPersimmonClasses{"PersimmonForCausalLM"};
inline constexpr ClassNames<1> kGptClasses{"OpenAIGPTLMHeadModel"};
inline constexpr ClassNames<1> kCtrlClasses{"CTRLLMHeadModel"};
inline constexpr ClassNames<1> kXglmClasses{"XGLMForCausalLM"};
inline constexpr ClassNames<1> kBioGptClasses{"BioGptForCausalLM"};
inline constexpr ClassNames<1> kGptNeoxJapaneseClasses{"GPTNeoXJapaneseForCausalLM"};
inline constexpr ClassNames<1> kBloomClasses{"BloomForCausalLM"};
inline constexpr ClassNames<1> kMptClasses{"MptForCausalLM"};
inline constexpr ClassNames<1> kFalconClasses{"FalconForCausalLM"};

// Nobody writes GGUF files of these, whose keys would have to say more than those of others do.
constexpr bool has_no_gguf(std::string_view architecture) {
  return architecture == "gptneo" || architecture == "gptj" || architecture == "codegen" ||
         architecture == "opt" || architecture == "bamba" || architecture == "recurrentgemma" ||
         architecture == "apertus" || architecture == "hyperclovax" || architecture == "phimoe" ||
         architecture == "exaone-moe" || architecture == "nanochat" || architecture == "biogpt" ||
         architecture == "gptneox-japanese" || architecture == "openai-gpt" ||
         architecture == "ctrl" || architecture == "persimmon" || architecture == "xglm" ||
         architecture == "granite-swa" || architecture == "bitnet" || architecture == "axk1" ||
         architecture == "axk2" || architecture == "hy_v4" || architecture == "longcat-flash" ||
         architecture == "zamba2" || architecture == "lfm3" || architecture == "flint" ||
         architecture == "kolibri1" || architecture == "sarvam-moe" ||
         architecture == "minimax-m3" || architecture == "deepseek4" ||
         architecture == "qwen4exp" || architecture == "olmo-hybrid" || architecture == "inkling";
}

void gpt2_defaults(ModelConfig& config);
void gpt_big_code_defaults(ModelConfig& config);
void gpt_neo_defaults(ModelConfig& config);
void gpt_j_defaults(ModelConfig& config);
void opt_defaults(ModelConfig& config);
void biogpt_defaults(ModelConfig& config);
void persimmon_defaults(ModelConfig& config);
void ctrl_defaults(ModelConfig& config);
void xglm_defaults(ModelConfig& config);
void gpt_neox_japanese_defaults(ModelConfig& config);
void falcon_defaults(ModelConfig& config);
void bloom_defaults(ModelConfig& config);
void mpt_defaults(ModelConfig& config);

// After the numbers: what flags of a config.json of these families say. Does nothing for others.
Status read_gpt_flags(const Json& json, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
