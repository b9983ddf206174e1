// How attention over latents on CUDA shares its work out (latent_attention_cuda.cu), and what of
// the workspace it takes.
//
// A team is the thread blocks that have the same keys at the same time, one a kLatentTileRows
// heads; all of them run at once. The tiles of a step are laid one behind the other, a step of
// kLatentStepKeys keys as long as the other, and cut into as many equal parts as there are teams: a
// tile that lies across a cut has its keys shared out, and what its parts give is merged
// (FlashMLA's scheduler does so). With batch invariance no tile is cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention/plan.h"

namespace headrace {

// What DeepSeek's models and their kin keep of a token: a latent, and a rotated key behind it.
inline constexpr int32_t kLatentKeyDim = 576, kLatentValueDim = 512;
inline constexpr int32_t kLatentStepKeys = 64;
// Sums, largest and total of a row; rows start on 8 bytes.
inline constexpr int32_t kLatentPartialFloats = kLatentValueDim + 2;

// Where the partial results of a row and head are.
struct LatentShares {
  int32_t first;  // row of the first share; those of the next are groups x kLatentTileRows further
  int32_t count;
};

// Thread blocks of a team.
int32_t latent_groups(const AttentionPlanShape& shape);
int32_t latent_teams(const AttentionPlanShape& shape);
// Heads of a thread block; beside them it has as many positions as kLatentTileRows holds.
int32_t latent_group_heads(const AttentionPlanShape& shape);

// Most shared-out parts of a step: a team's first and last.
int64_t latent_partials_max(const AttentionPlanShape& shape);
int64_t latent_sums_bytes(const AttentionPlanShape& shape);
// Of the workspace: sums, then LatentShares of every row and head.
int64_t latent_partial_bytes(const AttentionPlanShape& shape);

struct LatentWork {
  std::vector<AttentionTileWork> tiles;  // parts, in the order of teams
  std::vector<int32_t> team_first;       // [teams + 1] into tiles
  bool is_shared = false;                // some tile has several parts
};

LatentWork share_latents(const AttentionPlanShape& shape, std::span<const AttentionTileWork> whole);

}  // namespace headrace
