#include "ops/linear/grouped.h"

namespace headrace {
namespace {

// From so many rows an expert on, on average, tiles of 64 would read W from the L2 cache more than
// once, at less than the tensor cores take.
constexpr int64_t kManyRowsOfExpert = 48;

}  // namespace

GroupedTiles plan_grouped(const GroupedProduct& product, const DeviceTraits& traits) {
  if (traits.batch_invariant) return GroupedTiles::kFew;
  const bool many = product.rows >= kManyRowsOfExpert * product.experts;
  return many ? GroupedTiles::kMany : GroupedTiles::kFew;
}

}  // namespace headrace
