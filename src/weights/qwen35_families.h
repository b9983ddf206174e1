// Of the table of architectures (model_family_table.cc) those of gated DeltaNet: what the classes
// of Qwen3-Next, Qwen 3.5 and Qwen 4 (Exp) assume; of the last its numbers, which layers attend,
// and which read the last few tokens themselves.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/gguf.h"
#include "weights/model_family.h"

namespace headrace {

// Alone, and as the text half of a model that also sees.
inline constexpr std::array<std::string_view, 2> kQwen4Classes{"Qwen4ExpForCausalLM",
                                                               "Qwen4ExpForConditionalGeneration"};
inline constexpr std::array kQwen4Fields{
    ConfigField{&ModelConfig::rms_eps, "", "rms_norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&MixerConfig::conv_taps, "", "linear_conv_kernel_dim", 2,
                kModelLimits.conv_taps_max},
    ConfigField{&MixerConfig::key_heads, "", "linear_num_key_heads", 1, kModelLimits.heads_max},
    ConfigField{&MixerConfig::value_heads, "", "linear_num_value_heads", 1, kModelLimits.heads_max},
    ConfigField{&MixerConfig::key_dim, "", "linear_key_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&MixerConfig::value_dim, "", "linear_value_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&ExpertConfig::count, "", "num_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "", "num_experts_per_tok", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "", "moe_intermediate_size", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::shared_width, "", "shared_expert_intermediate_size", 1,
                kModelLimits.ffn_max},
    ConfigField{&BlockIndexConfig::heads, "", "indexer_n_heads", 1, kModelLimits.heads_max},
    ConfigField{&BlockIndexConfig::dim, "", "indexer_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&BlockIndexConfig::tokens, "", "indexer_compress_ratio", 1,
                kModelLimits.index_top_max},
    ConfigField{&GemmaConfig::streams, "", "hc_count", 2, 16},
    ConfigField{&GemmaConfig::gate_rank, "", "hc_lowrank", 1, kModelLimits.hidden_max}};

void qwen35_defaults(ModelConfig& config);
void qwen35_moe_defaults(ModelConfig& config);
void qwen3_next_defaults(ModelConfig& config);
void qwen4_defaults(ModelConfig& config);

// After the numbers of a config.json. Nothing of other architectures.
Status read_qwen4(const Json& json, const ConfigSource& source, ModelConfig& config);
// After the numbers and tensors of a GGUF file. Nothing of other architectures.
Status read_gguf_delta_net(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
