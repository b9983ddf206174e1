// Which rows of a batch have which adapter, as a pass narrows to ranges of rows and to those that
// are kept.
#pragma once

#include <span>
#include <vector>

#include "models/lora_adapter.h"
#include "models/lora_slots.h"

namespace headrace {

// Of a batch: all rows of one adapter, ascending.
struct AdapterRows {
  const LoraAdapter* adapter = nullptr;
  std::vector<int32_t> rows;
};

// The adapters of a batch, as a pass on a device sees them.
struct BatchAdapters {
  std::span<const AdapterRows> rows = {};  // CPU
  // GPU: tasks in device memory, of all rows and of those that are kept (ForwardBatch::kept).
  const LoraSlots* slots = nullptr;
  std::span<const LoraTask> tasks = {};
  std::span<const LoraTask> kept_tasks = {};

  bool any() const { return !rows.empty() || !tasks.empty(); }
};

// The rows that stay when a pass goes on with rows `kept` alone (ascending), by their new numbers.
std::vector<AdapterRows> keep_adapter_rows(std::span<const AdapterRows> adapters,
                                           std::span<const int32_t> kept);

// The same rows as tasks, for a GPU that their adapters' slots are on; what is left of `tasks` has
// none. REQUIRES: room, which lora_tasks_max() counts
void fill_lora_tasks(std::span<const AdapterRows> adapters, std::span<LoraTask> tasks);

// y += what the adapters add to the product `site` of rows [first, first + x.rows()); on a GPU all
// rows.
void add_adapters(OpContext& context, const BatchAdapters& adapters, int64_t first, int32_t site,
                  const ConstTensorView& x, const TensorView& y);

}  // namespace headrace
