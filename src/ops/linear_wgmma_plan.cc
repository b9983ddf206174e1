#include <algorithm>

#include "ops/linear_wgmma.h"
#include "ops/linear_wgmma_layout.h"

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
  return {is_narrow ? 128 : 256,
          static_cast<int32_t>(std::min(is_narrow ? narrow : wide, at_a_time))};
}

}  // namespace headrace
