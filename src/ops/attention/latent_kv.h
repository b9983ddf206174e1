// latent_kv: what multi-head latent attention (DeepSeek-AI, 2024) keeps of a token, and the rotated
// part of its queries.
//   kept     [RMSNorm(latent), rotate(k)]: one key for all heads, whose first part is its value
//   queries  rotate(q_h) of each head h, behind the part that meets the latent
// Pairs (i, i + rope_dim / 2) are rotated.
#pragma once

#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

struct LatentKvArgs {
  // Of the activation type, as q and queries:
  ConstTensorView kv;   // [T, latent + rope_dim]: what is kept, before norm and rotation
  ConstTensorView q;    // [T, H query_dim]: a head's last rope_dim components are rotated
  ConstTensorView cos;  // [T, rope_dim / 2] f32
  ConstTensorView sin;  // [T, rope_dim / 2] f32
  const float* norm;    // [latent]
  float norm_eps = 0.0f;
  int32_t heads = 0;  // H
  KvLayerView cache;  // one key head; k_dim latent + rope_dim, v_dim latent, values part of keys
  std::span<const int64_t> slots;  // [T] where each token's key goes
  TensorView queries;  // [T, H (latent + rope_dim)]: the last rope_dim of each head are written
};

void latent_kv(OpContext& context, const LatentKvArgs& args);

OpCost op_cost(const LatentKvArgs& args);
const KernelSet<LatentKvArgs>& latent_kv_kernels();
KernelTable<LatentKvArgs> latent_kv_cpu_kernels();
KernelTable<LatentKvArgs> latent_kv_cuda_kernels();

}  // namespace headrace
