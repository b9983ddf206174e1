#include "ops/attention/latent_plan.h"

#include <algorithm>

#include "base/round_up.h"

namespace headrace {
namespace {

// What a part costs beside its steps: queries come, sums go.
constexpr int64_t kStepsOfPart = 2;
// What it costs to merge: tiles stay whole where the longest team then has no more to do than this
// beyond its share.
constexpr int64_t kStepsOfMerge = 2;

int64_t latent_steps_of(const AttentionTileWork& tile) {
  return divide_up(tile.key_last - tile.key_first, kLatentStepKeys);
}

// Hands tiles to teams in turn, each of which has room for so many steps.
class Sharing {
 public:
  // `whole`: no tile is cut.
  Sharing(const AttentionPlanShape& shape, bool whole, int64_t room)
      : teams_(latent_teams(shape)), whole_(whole), room_(room), left_(room) {
    work_.team_first.push_back(0);
  }

  void add(const AttentionTileWork& tile) {
    const auto first = work_.tiles.size();
    int64_t steps = latent_steps_of(tile);
    AttentionTileWork part = tile;
    while (steps > 0) {
      if (left_ <= kStepsOfPart && !is_last_team()) next_team();
      const int64_t taken = steps_here(steps);
      part.key_last = taken == steps
                          ? tile.key_last
                          : part.key_first + static_cast<int32_t>(taken) * kLatentStepKeys;
      work_.tiles.push_back(part);
      part.key_first = part.key_last;
      steps -= taken;
      left_ -= taken + kStepsOfPart;
      excess_ = std::max(excess_, -left_);
    }
    number(first);
  }

  // The most that a team has beyond its room so far.
  int64_t excess() const { return excess_; }

  LatentWork end() {
    while (!is_last_team()) next_team();
    work_.team_first.push_back(static_cast<int32_t>(work_.tiles.size()));
    return std::move(work_);
  }

 private:
  bool is_last_team() const { return static_cast<int32_t>(work_.team_first.size()) == teams_; }
  void next_team() {
    work_.team_first.push_back(static_cast<int32_t>(work_.tiles.size()));
    left_ = room_;
  }
  // A whole tile is the team's in which its middle lies.
  int64_t steps_here(int64_t steps) {
    if (is_last_team()) return steps;
    if (!whole_) return std::min(steps, std::max<int64_t>(1, left_ - kStepsOfPart));
    if (left_ < room_ && left_ - kStepsOfPart < steps / 2) next_team();
    return steps;
  }
  // The parts of a tile that was added.
  void number(size_t first) {
    const auto count = static_cast<int32_t>(work_.tiles.size() - first);
    if (count == 1) return;
    work_.is_shared = true;
    for (int32_t i = 0; i < count; ++i) {
      AttentionTileWork& part = work_.tiles[first + static_cast<size_t>(i)];
      part.split = i;
      part.split_count = count;
      part.partial_first = partials_;
    }
    partials_ += count;
  }

  const int32_t teams_;
  const bool whole_;
  const int64_t room_;
  int64_t left_;
  int64_t excess_ = 0;
  int32_t partials_ = 0;
  LatentWork work_;
};

}  // namespace

int32_t latent_groups(const AttentionPlanShape& shape) {
  return static_cast<int32_t>(divide_up(shape.query_heads, kLatentTileRows));
}
int32_t latent_teams(const AttentionPlanShape& shape) {
  return std::max(1, shape.sm_count / latent_groups(shape));
}
int32_t latent_group_heads(const AttentionPlanShape& shape) {
  return std::min(shape.query_heads, kLatentTileRows);
}

int64_t latent_partials_max(const AttentionPlanShape& shape) {
  return int64_t{2} * latent_teams(shape);
}
int64_t latent_sums_bytes(const AttentionPlanShape& shape) {
  return latent_partials_max(shape) * latent_groups(shape) * kLatentTileRows *
         kLatentPartialFloats * 4;
}
int64_t latent_partial_bytes(const AttentionPlanShape& shape) {
  return latent_sums_bytes(shape) +
         int64_t{shape.rows_max} * shape.query_heads * static_cast<int64_t>(sizeof(LatentShares));
}

LatentWork share_latents(const AttentionPlanShape& shape,
                         std::span<const AttentionTileWork> whole) {
  int64_t steps = 0;
  for (const AttentionTileWork& tile : whole) steps += latent_steps_of(tile) + kStepsOfPart;
  const int64_t room = divide_up(steps, latent_teams(shape)) + kStepsOfPart;
  const auto share = [&](bool in_whole) {
    Sharing sharing(shape, in_whole, room);
    for (const AttentionTileWork& tile : whole) sharing.add(tile);
    return sharing;
  };
  Sharing of_whole = share(true);
  if (shape.batch_invariant || of_whole.excess() <= kStepsOfMerge) return of_whole.end();
  return share(false).end();
}

}  // namespace headrace
