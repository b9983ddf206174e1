// Of the table of architectures (model_family_table.cc) DBRX, whose numbers of attention and of
// mixtures lie in objects of their own.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/kin_families.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kDbrxFields{
    ConfigField{&ModelConfig::hidden, "", "d_model", 1, kModelLimits.hidden_max},
    ConfigField{&ModelConfig::layers, "", "n_layers", 1, kModelLimits.layers_max},
    ConfigField{&ModelConfig::heads, "", "n_heads", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::context_length, "", "max_seq_len", 1,
                kModelLimits.context_length_max},
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_epsilon", "", 1e-20, 1},
    ConfigField{&HeadSizes::qkv_clamp, "attention.clamp_kqv", "", 0, 1e6},
    ConfigField{&ExpertConfig::count, "expert_count", "", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "", 1, kModelLimits.experts_max}};
inline constexpr OneClass kDbrxClasses{"DbrxForCausalLM"};

void dbrx_defaults(ModelConfig& config);

// After the numbers of a config.json: those of the objects. Nothing of others.
Status read_dbrx(const Json& json, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
