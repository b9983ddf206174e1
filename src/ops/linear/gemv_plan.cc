#include <algorithm>

#include "ops/linear/gemv.h"
#include "ops/linear/gemv_layout.h"

namespace headrace {
namespace {

constexpr int64_t kSharedMax = 226 << 10;
// One block a multiprocessor, of this kernel and the next: where two find room, some
// multiprocessors get two and others none (105 -> 125 us a layer of an 8B model).
constexpr int64_t kSharedMin = 116 << 10;
// Sums of a block's tiles are added up at once where they find room, otherwise in rounds: while
// some warps add one up others may have begun with the next.
constexpr int64_t kSumsOfARound = 24 << 10;
constexpr int64_t kRoundsApart = 2;
constexpr int64_t kRowsAtOnce = 64 << 10;  // bytes of x; more come in windows where they may

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Windows {
  int64_t count, steps, bytes;  // of x: a warp's steps of each, all in shared memory at a time
};
Windows windows_of(const FusedProduct& product) {
  const int64_t steps =
      divided_up(product.k, int64_t{gemv_columns(product.weight_bytes)} * kGemvWarps);
  const int64_t bytes = 2 * product.m * product.k;
  if (!gemv_may_be_windowed(static_cast<int>(product.m), product.normed) || bytes <= kRowsAtOnce) {
    return {1, steps, bytes};
  }
  const int window_steps = gemv_window_steps(product.weight_bytes);
  return {divided_up(steps, window_steps), window_steps,
          2 * product.m * window_steps * kGemvWarps * gemv_x_line(product.weight_bytes)};
}

}  // namespace

GemvPlan plan_gemv(const FusedProduct& product, int32_t sm_count) {
  const int64_t outputs = product.gated ? product.n / 2 : product.n;
  const int64_t tiles = divided_up(outputs, product.gated ? kGemvHalfRows : kGemvTileRows);
  const int64_t share = divided_up(tiles, sm_count);
  const int64_t tile_bytes =
      4 * gemv_sum_index(kGemvWarps, 0, kGemvTileRows, 0, static_cast<int>(product.m));
  const Windows windows = windows_of(product);
  const auto bytes_of = [&](int32_t ahead, int64_t sums) {
    const int64_t norm = product.normed ? 4 * product.k : 0;  // where sums are later
    const int64_t squares = product.normed ? 4 * kGemvWarps * kGemvRowsMax : 0;
    return gemv_ring_offset(ahead, 0, 0) + windows.bytes + squares + std::max(sums, norm);
  };
  const int64_t round = kSumsOfARound / tile_bytes;
  struct Cut {
    int32_t ahead;
    int64_t round_tiles, sums;
  };
  for (const Cut& cut :
       {Cut{kGemvDeep, share, share * tile_bytes}, Cut{kGemvShallow, share, share * tile_bytes},
        Cut{kGemvShallow, round, kRoundsApart * round * tile_bytes}}) {
    const int64_t bytes = bytes_of(cut.ahead, cut.sums);
    if (bytes > kSharedMax || (windows.count > 1 && cut.round_tiles < share)) continue;
    return {.blocks = static_cast<int32_t>(divided_up(tiles, share)),
            .tiles = static_cast<int32_t>(tiles),
            .round_tiles = static_cast<int32_t>(cut.round_tiles),
            .windows = static_cast<int32_t>(windows.count),
            .window_steps = static_cast<int32_t>(windows.steps),
            .ahead = cut.ahead,
            .shared_bytes = static_cast<int32_t>(std::max(bytes, kSharedMin))};
  }
  return {};
}

}  // namespace headrace
