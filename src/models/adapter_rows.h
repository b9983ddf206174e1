// Which rows of a batch have which adapter, as a pass narrows to ranges of rows and to those that
// are kept.
#pragma once

#include <span>
#include <vector>

#include "models/lora_adapter.h"

namespace headrace {

// Of a batch: all rows of one adapter, ascending.
struct AdapterRows {
  const LoraAdapter* adapter = nullptr;
  std::vector<int32_t> rows;
};

// The rows that stay when a pass goes on with rows `kept` alone (ascending), by their new numbers.
std::vector<AdapterRows> keep_adapter_rows(std::span<const AdapterRows> adapters,
                                           std::span<const int32_t> kept);

// y += what the adapters add to the product `site` of rows [first, first + x.rows()).
void add_adapters(OpContext& context, std::span<const AdapterRows> adapters, int64_t first,
                  int32_t site, const ConstTensorView& x, const TensorView& y);

}  // namespace headrace
