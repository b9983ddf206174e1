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

void fill_lora_tasks(std::span<const AdapterRows> adapters, std::span<LoraTask> tasks) {
  size_t filled = 0;
  for (const AdapterRows& each : adapters) {
    const std::span<const int32_t> rows = each.rows;
    for (size_t first = 0; first < rows.size(); first += kLoraTaskRows) {
      const auto part = rows.subspan(first, std::min<size_t>(kLoraTaskRows, rows.size() - first));
      CHECK(filled < tasks.size());
      LoraTask& task = tasks[filled++];
      task = {.slot = each.adapter->slot(), .count = static_cast<int32_t>(part.size())};
      std::ranges::copy(part, task.rows);
    }
  }
  std::fill(tasks.begin() + static_cast<std::ptrdiff_t>(filled), tasks.end(), LoraTask{});
}

namespace {

void add_groups(OpContext& context, std::span<const AdapterRows> adapters, int64_t first,
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

}  // namespace

void add_adapters(OpContext& context, const BatchAdapters& adapters, int64_t first, int32_t site,
                  const ConstTensorView& x, const TensorView& y) {
  if (adapters.slots == nullptr) return add_groups(context, adapters.rows, first, site, x, y);
  CHECK(first == 0);
  lora_linear(context, {.x = x,
                        .groups = {},
                        .y = y,
                        .tasks = adapters.tasks,
                        .places = adapters.slots->places(site),
                        .slots = &adapters.slots->view()});
}

}  // namespace headrace
