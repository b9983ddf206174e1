// gather_keys: the keys of some places of a cache, side by side as f32 in blocks of their own, so
// that attention() over these attends the chosen keys alone. Numbers are those that the cache
// means, and attention has the bits that it has of them in whatever format.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

// Of one row: its `count` places, of the sequence with this table, go to block first_block on.
struct GatheredRow {
  const int32_t* places = nullptr;
  int32_t count = 0;
  const int32_t* block_table = nullptr;
  int32_t first_block = 0;
};

struct GatherKeysArgs {
  KvLayerView from;  // values are part of keys
  std::span<const GatheredRow> rows;
  KvLayerView to;  // f32, transposed, as many key components; else as `from`
};

void gather_keys(OpContext& context, const GatherKeysArgs& args);

OpCost op_cost(const GatherKeysArgs& args);
const KernelSet<GatherKeysArgs>& gather_keys_kernels();
KernelTable<GatherKeysArgs> gather_keys_cpu_kernels();

}  // namespace headrace
