#include <algorithm>

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

int64_t grouped_unpacked_experts(const LinearWeight& weight, int64_t experts) {
  CHECK(experts > 0 && weight.n() >= experts);
  constexpr int64_t kBytesMax = 128 << 20;
  const int64_t bytes = 2 * weight.n() / experts * weight.k();
  return std::clamp<int64_t>(kBytesMax / bytes, 1, experts);
}

int64_t grouped_workspace_bytes(const LinearWeight& weight, int64_t experts) {
  if (weight.is_matrix() || weight.on_cpu()) return 0;
  return grouped_unpacked_experts(weight, experts) * 2 * weight.n() / experts * weight.k();
}

}  // namespace headrace
