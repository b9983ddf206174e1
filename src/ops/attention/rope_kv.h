// Rotary position embedding (Su et al., 2021) of the q and k parts of merged qkv rows, in place,
// and the write of k and v into the paged cache: one pass over the rows. Optionally each head of q
// and k goes through an RMSNorm first (Qwen3, Gemma 3).
#pragma once

#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

enum class RopeStyle {
  kHalf,         // pairs (i, i + rope_dim/2): NeoX, HF Llama
  kInterleaved,  // pairs (2i, 2i + 1): the original, GGUF's permuted Llama rows
};

struct RopeKvArgs {
  TensorView qkv;       // [T, (Hq + Hkv) k_dim + Hkv v_dim] of the activation type: q, k, v heads
  ConstTensorView cos;  // [T, rope_dim / 2] f32; rope_dim <= k_dim, the rest of a head stays as it
                        // is (0 columns: no rotation, as in SmolLM3's layers without positions)
  ConstTensorView sin;  // [T, rope_dim / 2] f32
  RopeStyle style = RopeStyle::kHalf;
  int32_t query_heads = 0;  // Hq; Hkv, k_dim and v_dim are kv's
  KvLayerView kv;
  std::span<const int64_t> slots;  // [T] where token t's k and v go, in device memory; no two alike
  // RMSNorm weights of a head of q and of k, in device memory; null = no norm (both or none;
  // on a CPU k may be normed alone).
  const float* q_norm = nullptr;  // [k_dim]
  const float* k_norm = nullptr;  // [k_dim]
  float norm_eps = 0.0f;
};

void rope_kv(OpContext& context, const RopeKvArgs& args);

OpCost op_cost(const RopeKvArgs& args);
const KernelSet<RopeKvArgs>& rope_kv_kernels();
KernelTable<RopeKvArgs> rope_kv_cpu_kernels();
KernelTable<RopeKvArgs> rope_kv_cuda_kernels();

}  // namespace headrace
