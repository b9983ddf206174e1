// Of the table of architectures (model_family_table.cc) RWKV-7, in the files of
// flash-linear-attention: the numbers that they give under names of their own, what the class
// assumes, and what else a file says.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/gguf.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kRwkv7Fields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_epsilon", "norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&RwkvConfig::head_dim, "wkv.head_size", "head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&RwkvConfig::decay_rank, "attention.decay_lora_rank", "decay_low_rank_dim", 1,
                kModelLimits.hidden_max},
    ConfigField{&RwkvConfig::rate_rank, "attention.iclr_lora_rank", "a_low_rank_dim", 1,
                kModelLimits.hidden_max},
    ConfigField{&RwkvConfig::value_rank, "attention.value_residual_mix_lora_rank", "v_low_rank_dim",
                1, kModelLimits.hidden_max},
    ConfigField{&RwkvConfig::gate_rank, "attention.gate_lora_rank", "gate_low_rank_dim", 1,
                kModelLimits.hidden_max}};
inline constexpr std::array<std::string_view, 1> kRwkv7Classes{"RWKV7ForCausalLM"};
inline constexpr std::array<std::string_view, 1> kRwkv7Activations{"sqrelu"};

void rwkv7_defaults(ModelConfig& config);

// After the numbers of a config.json: sizes that it leaves to the class, and what of it is not
// supported, refused by its key's name.
Status read_rwkv7(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file.
Status read_gguf_rwkv7(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
