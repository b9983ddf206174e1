#include <algorithm>

#include "ops/linear/grouped.h"

namespace headrace {
namespace {

// From so many rows an expert on, on average, tiles of 64 would read W from the L2 cache more than
// once, at less than the tensor cores take.
constexpr int64_t kManyRowsOfExpert = 48;

// Rounds of tiles of so many rows of W, weighed by them, where every expert that can have a row has
// one.
int64_t rounds(const GroupedProduct& product, int64_t tile, int32_t sm_count) {
  const int64_t active = std::min(product.experts, product.rows);
  const int64_t tiles = active * ((product.n + tile - 1) / tile);
  return (tiles + sm_count - 1) / sm_count * tile;
}

}  // namespace

GroupedTiles plan_grouped(const GroupedProduct& product, const DeviceTraits& traits) {
  if (traits.batch_invariant) return GroupedTiles::kFew;
  if (product.rows >= kManyRowsOfExpert * product.experts) return GroupedTiles::kMany;
  const int32_t sm_count = std::max(traits.sm_count, 1);
  const bool narrow = rounds(product, 64, sm_count) < rounds(product, 128, sm_count);
  return narrow ? GroupedTiles::kNarrow : GroupedTiles::kFew;
}

}  // namespace headrace
