// Llama (Touvron et al., 2023) and its kin: RMSNorm before each part, rotary positions, grouped
// query attention, gated SiLU feed-forward, tied or separate output matrix.
#pragma once

#include "models/model.h"

namespace headrace {

Result<ModelSpec> parse_llama(const ModelConfig& config);
std::vector<TensorSpec> llama_tensors(const ModelConfig& config);
Result<std::unique_ptr<Model>> load_llama(const ModelConfig& config, const WeightSource& weights,
                                          Device& device, const ModelLoadOptions& options);

}  // namespace headrace
