// Embedding lookup: row tokens[t] of the table, as f32, times a scale.
#pragma once

#include <span>

#include "base/ids.h"
#include "ops/op.h"

namespace headrace {

struct EmbeddingArgs {
  std::span<const TokenId> tokens;  // [T], each in [0, V)
  ConstTensorView table;            // [V, D] F32, F16, BF16, Q8_0, Q4_0 or Q4_1: GGUF's own rows
  TensorView out;                   // [T, D] f32
  float scale = 1.0f;               // Gemma's sqrt(D), Granite's multiplier
};

// On the CPU rows are shared out over the device's pool.
void embedding(OpContext& context, const EmbeddingArgs& args);

KernelSet<EmbeddingArgs> embedding_kernels();

}  // namespace headrace
