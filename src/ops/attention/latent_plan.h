// How attention over latents on CUDA cuts its work (latent_attention_cuda.cu), and what of the
// workspace it takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/plan.h"

namespace headrace {

// What DeepSeek's models and their kin keep of a token: a latent, and a rotated key behind it.
inline constexpr int32_t kLatentKeyDim = 576, kLatentValueDim = 512;
inline constexpr int32_t kLatentSharesMax = 64;  // of a row's keys
inline constexpr int32_t kLatentShareKeysMin = 64;
// Sums, largest and total of a row; rows start on 8 bytes.
inline constexpr int32_t kLatentPartialFloats = kLatentValueDim + 2;

// Where the partial results of a row and head are.
struct LatentShares {
  int32_t first;  // of the first share, in rows; those of the next are kLatentTileRows further
  int32_t count;
};

// Two on a multiprocessor.
inline int64_t latent_blocks(const AttentionPlanShape& shape) {
  return int64_t{2} * shape.sm_count;
}
// Items are shared out only as far as all run at once.
inline int64_t latent_sums_bytes(const AttentionPlanShape& shape) {
  return latent_blocks(shape) * kLatentTileRows * kLatentPartialFloats * 4;
}
inline int64_t latent_partial_bytes(const AttentionPlanShape& shape) {
  return latent_sums_bytes(shape) +
         latent_blocks(shape) * kLatentTileRows * static_cast<int64_t>(sizeof(LatentShares));
}

}  // namespace headrace
