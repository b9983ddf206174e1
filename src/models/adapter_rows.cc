#include "models/adapter_rows.h"

#include <algorithm>
#include <iterator>

namespace headrace {

std::vector<AdapterRows> keep_adapter_rows(std::span<const AdapterRows> adapters,
                                           std::span<const int32_t> kept) {
  std::vector<AdapterRows> left;
  for (const AdapterRows& each : adapters) {
    AdapterRows of_kept{each.adapter, {}};
    for (size_t i = 0; i < kept.size(); ++i) {
      if (std::ranges::binary_search(each.rows, kept[i])) {
        of_kept.rows.push_back(static_cast<int32_t>(i));
      }
    }
    if (!of_kept.rows.empty()) left.push_back(std::move(of_kept));
  }
  return left;
}

void add_adapters(OpContext& context, std::span<const AdapterRows> adapters, int64_t first,
                  int32_t site, const ConstTensorView& x, const TensorView& y) {
  std::vector<LoraGroup> groups;
  for (const AdapterRows& each : adapters) {
    const auto from = std::ranges::lower_bound(each.rows, first);
    const auto to = std::ranges::lower_bound(from, each.rows.end(), first + x.rows());
    const std::span<const LoraFactor> factors = each.adapter->factors(site);
    if (from != to && !factors.empty()) groups.push_back({{from, to}, factors});
  }
  if (groups.empty()) return;
  lora_linear(context,
              {.x = x, .groups = groups, .first_row = static_cast<int32_t>(first), .y = y});
}

}  // namespace headrace
