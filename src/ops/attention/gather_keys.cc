#include "ops/attention/gather_keys.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/attention/latent_plan.h"

namespace headrace {
namespace {

void check_args(const GatherKeysArgs& args) {
  const KvLayerView &from = args.from, &to = args.to;
  CHECK(from.v_aliases_k == to.v_aliases_k && to.block_tokens == from.block_tokens);
  CHECK(to.k_dim == from.k_dim && to.v_dim == from.v_dim && to.kv_heads == 1);
  CHECK(to.index_dim == 0 && to.source_dim == 0 && to.rate == 1);
  if (args.step == nullptr) {
    CHECK(to.k_format == KvFormat::kF32 && to.keys == KeyLayout::kTransposed);
    CHECK(to.v_aliases_k || to.v_format == KvFormat::kF32);
    for (const GatheredRow& row : args.rows) CHECK(row.head >= 0 && row.head < from.kv_heads);
    return;
  }
  CHECK(from.v_aliases_k);
  const GatheredStep& step = *args.step;
  CHECK(from.rate == 1 && to.k_format == from.k_format && to.keys == from.keys &&
        from.kv_heads == 1);
  CHECK(step.plan != nullptr && step.plan->shape.lists_rows && step.memory != nullptr);
  CHECK(step.row_count > 0 && step.row_count <= kGatheredRowsMax);
  CHECK(step.blocks_of_row * to.block_tokens >= step.chosen.top);
}

int64_t keys_of(const GatherKeysArgs& args) {
  if (args.step != nullptr) return int64_t{args.step->row_count} * args.step->chosen.top;
  int64_t keys = 0;
  for (const GatheredRow& row : args.rows) keys += row.count;
  return keys;
}

}  // namespace

GatheredPlanPlaces gathered_plan_places(const AttentionPlanShape& shape, int32_t rows) {
  const int32_t teams = latent_teams(shape);
  const auto bytes_of_tiles =
      static_cast<int32_t>(sizeof(AttentionTileWork)) * std::max(rows, teams);
  GatheredPlanPlaces places{.tiles_first = sizeof(AttentionPlanHeader),
                            .teams_first = 0,
                            .table_first = 0,
                            .teams = teams};
  places.teams_first = places.tiles_first + bytes_of_tiles;
  places.table_first = places.teams_first + (teams + 1) * static_cast<int32_t>(sizeof(int32_t));
  return places;
}

int64_t gathered_plan_bytes(const AttentionPlanShape& shape, int32_t rows, int32_t blocks_of_row) {
  return gathered_plan_places(shape, rows).table_first +
         int64_t{rows} * blocks_of_row * static_cast<int64_t>(sizeof(int32_t));
}

AttentionPlan gathered_plan(const GatheredStep& step) {
  const AttentionPlanShape& shape = step.plan->shape;
  return {.has_prefill = true,
          .has_merge = !shape.batch_invariant,
          .kv_length_max = step.chosen.top,
          .bytes = gathered_plan_bytes(shape, step.row_count, step.blocks_of_row),
          .device = step.memory,
          .shape = shape};
}

const KernelSet<GatherKeysArgs>& gather_keys_kernels() {
  static const KernelSet<GatherKeysArgs> set(
      {gather_keys_cuda_kernels(), gather_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const GatherKeysArgs& args) {
  const int64_t bytes = (k_part_bytes(args.from) + v_part_bytes(args.from)) / args.from.kv_heads +
                        k_part_bytes(args.to) + v_part_bytes(args.to);
  const int64_t rows = args.step != nullptr ? args.step->row_count : std::ssize(args.rows);
  OpCost cost = row_op_cost(rows, args.from.k_dim, keys_of(args) * bytes / args.from.block_tokens);
  cost.shape = fmt::format("keys of {}", args.from.k_dim);
  return cost;
}

void gather_keys(OpContext& context, const GatherKeysArgs& args) {
  check_args(args);
  if (args.step == nullptr && args.rows.empty()) return;
  run_op(context, gather_keys_kernels(), args);
}

}  // namespace headrace
