#include "bench/op_profile.h"

#include <algorithm>
#include <utility>

namespace headrace {

void OpProfile::ran(std::string_view kernel, const OpCost& cost, int64_t nanoseconds) {
  std::lock_guard lock(mutex_);
  OpTotal& total = totals_[{std::string(kernel), cost.shape, cost.rows}];
  if (total.calls == 0) {
    total.kernel = kernel;
    total.cost = cost;
  } else {
    total.cost.bytes += cost.bytes;
    total.cost.flops += cost.flops;
  }
  ++total.calls;
  total.nanoseconds += nanoseconds;
}

std::vector<OpTotal> OpProfile::take() {
  std::vector<OpTotal> totals;
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, total] : totals_) totals.push_back(std::move(total));
    totals_.clear();
  }
  for (OpTotal& total : totals) {
    total.cost.bytes /= total.calls;
    total.cost.flops /= total.calls;
  }
  std::sort(totals.begin(), totals.end(),
            [](const OpTotal& a, const OpTotal& b) { return a.nanoseconds > b.nanoseconds; });
  return totals;
}

}  // namespace headrace
