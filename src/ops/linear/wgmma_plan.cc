#include <algorithm>

#include "ops/linear/wgmma.h"
#include "ops/linear/wgmma_layout.h"

namespace headrace {
namespace {

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A step of a tile of 128 rows of W takes more than half of one of 256: it brings 24 KB for half
// the products that 32 KB serve.
constexpr int64_t kCostOf256 = 100, kCostOf128 = 58;

}  // namespace

// The width with the fewer rounds of tiles, weighed by what a round takes.
WgmmaPlan plan_wgmma(int64_t m, int64_t n, int32_t sm_count) {
  const int64_t rows = divided_up(m, kWgmmaClusterRows);
  const int64_t at_a_time = sm_count / kWgmmaBlocks;
  const int64_t wide = rows * divided_up(n, 256), narrow = rows * divided_up(n, 128);
  const bool is_narrow =
      divided_up(narrow, at_a_time) * kCostOf128 < divided_up(wide, at_a_time) * kCostOf256;
  const int64_t tiles = is_narrow ? narrow : wide, width = is_narrow ? 128 : 256;
  const int64_t rounds = divided_up(tiles, at_a_time);
  const double could =
      static_cast<double>(rounds * at_a_time) * static_cast<double>(kWgmmaClusterRows * width);
  return {.tile_rows = static_cast<int32_t>(width),
          .clusters = static_cast<int32_t>(std::min(tiles, at_a_time)),
          .filled = static_cast<double>(m) * static_cast<double>(n) / could};
}

}  // namespace headrace
