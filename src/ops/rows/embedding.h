// Embedding lookup: row tokens[t] of the table times a scale; where a model has learned positions,
// plus row positions[t] of theirs (Radford et al., 2018).
#pragma once

#include <span>

#include "base/ids.h"
#include "ops/op.h"
#include "ops/packing/packed_weight.h"

namespace headrace {

struct EmbeddingArgs {
  std::span<const TokenId> tokens;  // [T], each in [0, V) (but see the last), in device memory
  ConstTensorView table;            // [V, D]; CPU: any type of GGUF's own rows; CUDA: of out's type
  TensorView out;                   // [T, D] of the model's activation type
  float scale = 1.0f;               // Gemma's sqrt(D), Granite's multiplier
  // The table as a head has it, which a model with tied embeddings then has once, or on CUDA in
  // packed groups of its own; else null. REQUIRES: `table` has no data
  const LinearWeight* packed = nullptr;     // [V, D]
  std::span<const int32_t> positions = {};  // [T], each in [0, P), in device memory
  ConstTensorView position_table = {};      // [P, D] f32, dense; no data: none is added
  bool first_for_others = false;            // tokens from V on are taken as token 0 (Gemma 3n, 4)
};

// On the CPU rows are shared out over the device's pool.
void embedding(OpContext& context, const EmbeddingArgs& args);

OpCost op_cost(const EmbeddingArgs& args);
const KernelSet<EmbeddingArgs>& embedding_kernels();
KernelTable<EmbeddingArgs> embedding_cuda_kernels();

}  // namespace headrace
