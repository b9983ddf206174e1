// gather_keys: the keys of some places of a cache, and their values where these are no part of
// them, side by side in blocks of their own, so that attention() over these attends the chosen keys
// alone. On the CPU they are f32, the numbers that
// the cache means, and attention has the bits that it has of them in whatever format; on CUDA they
// are in the cache's format.
//
// On CUDA the host does not know how long sequences are when a recorded step is replayed. So the
// device itself writes the plan with which attention() runs over the gathered blocks: each row is a
// sequence of its own.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/plan.h"
#include "ops/attention/select_keys.h"
#include "ops/op.h"

namespace headrace {

// Of one row: its `count` places, of a head of the sequence with this table, go to block
// first_block on, behind the `before` keys that lie there.
struct GatheredRow {
  const int32_t* places = nullptr;
  int32_t count = 0;
  const int32_t* block_table = nullptr;
  int32_t first_block = 0;
  int32_t head = 0;  // of `from`
  int32_t before = 0;
};

// CUDA: rows [row_first, row_first + row_count) of a step. The places of each go to blocks of its
// own: row i of these has blocks [i blocks_of_row, (i + 1) blocks_of_row).
struct GatheredStep {
  ChosenPlaces chosen;                  // of all rows of the step
  const AttentionPlan* plan = nullptr;  // of the step; it lists rows
  int32_t row_first = 0;
  int32_t row_count = 0;  // at most kGatheredRowsMax
  int32_t blocks_of_row = 0;
  std::byte* memory = nullptr;  // gathered_plan_bytes()
};
inline constexpr int32_t kGatheredRowsMax = 64;

// The plan that gather_keys() writes, of which row 0 is the step's row `row_first`. Valid as long
// as its memory.
AttentionPlan gathered_plan(const GatheredStep& step);
int64_t gathered_plan_bytes(const AttentionPlanShape& shape, int32_t rows, int32_t blocks_of_row);

// Where what the device writes lies in that memory, in bytes: the plan (header, tiles, first tiles
// of teams), then a block table for all rows. Shared by host and device.
struct GatheredPlanPlaces {
  int32_t tiles_first, teams_first, table_first;
  int32_t teams;  // of thread blocks that share tiles out; parts of all rows are no more, or a row
                  // is one
};
GatheredPlanPlaces gathered_plan_places(const AttentionPlanShape& shape, int32_t rows);

struct GatherKeysArgs {
  KvLayerView from;                   // CUDA: values are part of keys
  std::span<const GatheredRow> rows;  // CPU
  // One head, of the components that `from` has, without an index, a key a token. CPU: f32,
  // transposed. CUDA: as `from`.
  KvLayerView to;
  const GatheredStep* step = nullptr;  // CUDA, in place of rows
};

void gather_keys(OpContext& context, const GatherKeysArgs& args);

OpCost op_cost(const GatherKeysArgs& args);
const KernelSet<GatherKeysArgs>& gather_keys_kernels();
KernelTable<GatherKeysArgs> gather_keys_cpu_kernels();
KernelTable<GatherKeysArgs> gather_keys_cuda_kernels();

}  // namespace headrace
