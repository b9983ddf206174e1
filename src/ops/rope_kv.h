// Rotary position embedding (Su et al., 2021) of the q and k parts of merged qkv rows, in place,
// and the write of k and v into the paged cache: one pass over the rows.
#pragma once

#include <span>

#include "ops/kv_view.h"
#include "ops/op.h"

namespace headrace {

enum class RopeStyle {
  kHalf,         // pairs (i, i + rope_dim/2): NeoX, HF Llama
  kInterleaved,  // pairs (2i, 2i + 1): the original, GGUF's permuted Llama rows
};

struct RopeKvArgs {
  TensorView qkv;       // [T, (Hq + 2 Hkv) d] f32: q heads, k heads, v heads
  ConstTensorView cos;  // [T, rope_dim / 2] f32; rope_dim <= d, the rest of a head is not rotated
  ConstTensorView sin;  // [T, rope_dim / 2] f32
  RopeStyle style = RopeStyle::kHalf;
  int32_t query_heads = 0;  // Hq; Hkv and d are kv's
  KvLayerView kv;
  std::span<const int64_t> slots;  // [T] where token t's k and v go; no two alike
};

void rope_kv(OpContext& context, const RopeKvArgs& args);

KernelSet<RopeKvArgs> rope_kv_kernels();

// cos and sin of positions[t] * inv_freq[i], in double, rounded once to f32: once a step, for all
// layers. cos, sin: [T, inv_freq.size()] f32.
void rope_angles(std::span<const int32_t> positions, std::span<const double> inv_freq,
                 const TensorView& cos, const TensorView& sin);

}  // namespace headrace
