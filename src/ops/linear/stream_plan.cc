#include "ops/linear/stream.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr int32_t kTileRows[] = {128, 112, 96, 64};
constexpr int32_t kSplits[] = {1, 2};  // clusters of four were slower

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

// The cut with the least time of its slowest block: bytes of W, and of some rows of x beside them.
StreamPlan plan_stream(int64_t n, int64_t k, bool gated, int32_t sm_count) {
  constexpr int64_t kRowsBeside = 32;
  StreamPlan best;
  int64_t least = INT64_MAX;
  for (const int32_t rows : kTileRows) {
    const int64_t tiles = divided_up(gated ? n / 2 : n, gated ? rows / 2 : rows);
    for (const int32_t splits : kSplits) {
      if (splits > 1 && tiles * splits > sm_count) continue;
      const int64_t clusters = std::min<int64_t>(tiles, sm_count / splits);
      const int64_t cost = divided_up(tiles, clusters) * (rows + kRowsBeside) *
                           divided_up(divided_up(k, kStreamColumns), splits);
      if (cost >= least) continue;
      least = cost;
      best = {rows, splits, static_cast<int32_t>(tiles), static_cast<int32_t>(clusters)};
    }
  }
  return best;
}

}  // namespace headrace
