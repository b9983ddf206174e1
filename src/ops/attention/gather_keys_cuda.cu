// gather_keys on CUDA: a thread block copies the keys of one block of a row. One more writes the
// plan of attention over what is gathered: a tile a row, or parts of it where there are fewer rows
// than teams of thread blocks (latent_plan.h). What is launched depends on the number of rows
// alone.
#include <algorithm>
#include <array>

#include "ops/attention/gather_keys.h"
#include "ops/attention/latent_plan.h"
#include "ops/attention/step_rows.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace {
namespace {

constexpr int kThreads = 128;
static_assert(kGatheredRowsMax <= kThreads);
// Fewer steps of keys are not worth a part of their own, which is merged.
constexpr int32_t kPartStepsMin = 2;

struct GatherArguments {
  gpu::StepRows rows;
  ChosenPlaces chosen;
  int32_t row_first, row_count, blocks_of_row;
  const std::byte* from;  // block 0
  std::byte* to;
  int64_t from_stride, to_stride;  // bytes of a block
  int32_t block_tokens, key_bytes;
  std::byte* memory;  // the plan that is written
  GatheredPlanPlaces places;
  bool cuts_rows;  // into parts

  // Of row `i` of these; 0: padding.
  __device__ __forceinline__ int32_t count(int32_t i) const {
    return min(chosen.top, rows.seen(row_first + i));
  }
  __device__ __forceinline__ int32_t* table(int32_t i) const {
    return reinterpret_cast<int32_t*>(memory + places.table_first) + i * blocks_of_row;
  }
};

// The keys of block `block` of row `i`.
template <class Unit>
__device__ void copy_block(const GatherArguments& args, int32_t i, int32_t block) {
  if (threadIdx.x == 0) args.table(i)[block] = i * args.blocks_of_row + block;
  const int32_t first = block * args.block_tokens;
  const int32_t count = min(args.block_tokens, args.count(i) - first);
  const int32_t* const table = args.rows[args.row_first + i].block_table;
  const int32_t* const chosen =
      args.chosen.front + (args.row_first + i) * args.chosen.stride + first;
  auto* const to =
      reinterpret_cast<Unit*>(args.to + (int64_t{i} * args.blocks_of_row + block) * args.to_stride);
  const auto units = args.key_bytes / static_cast<int32_t>(sizeof(Unit));
  for (auto at = static_cast<int32_t>(threadIdx.x); at < count * units; at += kThreads) {
    const int32_t key = at / units, place = chosen[key];
    const auto* const from = reinterpret_cast<const Unit*>(
        args.from + table[place / args.block_tokens] * args.from_stride +
        int64_t{place % args.block_tokens} * args.key_bytes);
    to[at] = from[at % units];
  }
}

// How the keys of row `i` are cut: steps of a part, and parts.
struct RowParts {
  int32_t steps, count;
};
__device__ RowParts parts_of(const GatherArguments& args, int32_t keys, int32_t rows) {
  const int32_t steps = (keys + kLatentStepKeys - 1) / kLatentStepKeys;
  if (steps == 0) return {0, 0};
  const int32_t most = args.cuts_rows ? max(1, args.places.teams / rows) : 1;
  const int32_t each = most == 1 ? steps : max(kPartStepsMin, (steps + most - 1) / most);
  return {each, (steps + each - 1) / each};
}

// The tiles of row `i`, whose parts are those from `part` on.
__device__ void write_tiles(const GatherArguments& args, int32_t i, RowParts parts, int32_t part) {
  auto* const tiles =
      reinterpret_cast<AttentionTileWork*>(args.memory + args.places.tiles_first) + part;
  const int32_t keys = args.count(i), part_keys = parts.steps * kLatentStepKeys;
  for (int32_t split = 0; split < parts.count; ++split) {
    tiles[split] = {.block_table = args.table(i),
                    .row_first = i,
                    .row_count = 1,
                    .position = keys - 1,
                    .key_first = split * part_keys,
                    .key_last = min(keys, (split + 1) * part_keys),
                    .split = split,
                    .split_count = parts.count,
                    .merge = -1,
                    .partial_first = part,
                    .step_first = split * part_keys};
  }
}

// Teams have a part each, or rows in equal shares.
__device__ void write_teams(const GatherArguments& args, int32_t parts) {
  auto* const first = reinterpret_cast<int32_t*>(args.memory + args.places.teams_first);
  const int32_t teams = args.places.teams;
  for (auto team = static_cast<int32_t>(threadIdx.x); team <= teams; team += kThreads) {
    first[team] =
        parts <= teams ? min(team, parts) : static_cast<int32_t>(int64_t{parts} * team / teams);
  }
}

// By one thread block.
__device__ void write_plan(const GatherArguments& args) {
  __shared__ int32_t part_first[kGatheredRowsMax + 1];
  __shared__ bool is_shared;
  const auto i = static_cast<int32_t>(threadIdx.x);
  const bool is_row = i < args.row_count;
  const int32_t keys = is_row ? max(0, args.count(i)) : 0;
  const int32_t rows = __syncthreads_count(keys > 0);
  const RowParts parts = parts_of(args, keys, max(1, rows));
  if (is_row) part_first[i] = parts.count;
  if (i == 0) is_shared = false;
  __syncthreads();
  if (parts.count > 1) is_shared = true;
  if (i == 0) {
    int32_t sum = 0;
    for (int32_t row = 0; row < args.row_count; ++row) {
      const int32_t count = part_first[row];
      part_first[row] = sum;
      sum += count;
    }
    part_first[args.row_count] = sum;
  }
  __syncthreads();
  const int32_t all = part_first[args.row_count];
  if (is_row) write_tiles(args, i, parts, part_first[i]);
  write_teams(args, all);
  if (i != 0) return;
  AttentionPlanHeader header{};
  header.prefill_count = all;
  header.prefill_first = args.places.tiles_first;
  header.row_count = min(args.row_count, max(0, args.rows.count() - args.row_first));
  header.teams_first = args.places.teams_first;
  header.latents_shared = is_shared ? 1 : 0;
  *reinterpret_cast<AttentionPlanHeader*>(args.memory) = header;
}

// blockIdx: block of a row, or one more; row.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    gather_blocks(const __grid_constant__ GatherArguments args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto block = static_cast<int32_t>(blockIdx.x), row = static_cast<int32_t>(blockIdx.y);
  if (block < args.blocks_of_row) return copy_block<Unit>(args, row, block);
  if (row == 0) write_plan(args);
}

void run(OpContext& context, const GatherKeysArgs& args) {
  const GatheredStep& step = *args.step;
  const KvLayerView &from = args.from, &to = args.to;
  const AttentionPlanShape& shape = step.plan->shape;
  const GatherArguments arguments{
      .rows = gpu::StepRows::of(*step.plan),
      .chosen = step.chosen,
      .row_first = step.row_first,
      .row_count = step.row_count,
      .blocks_of_row = step.blocks_of_row,
      .from = from.base,
      .to = to.base,
      .from_stride = from.block_stride,
      .to_stride = to.block_stride,
      .block_tokens = from.block_tokens,
      .key_bytes =
          from.k_dim * static_cast<int32_t>(dtype_info(kv_element(from.k_format)).block_bytes),
      .memory = step.memory,
      .places = gathered_plan_places(shape, step.row_count),
      .cuts_rows = !shape.batch_invariant};
  const bool wide = arguments.key_bytes % gpu::kAccessBytes == 0 &&
                    gpu::multiple_of_access(from.base) && gpu::multiple_of_access(to.base) &&
                    from.block_stride % gpu::kAccessBytes == 0 &&
                    to.block_stride % gpu::kAccessBytes == 0;
  const dim3 blocks(static_cast<unsigned>(step.blocks_of_row + 1),
                    static_cast<unsigned>(step.row_count));
  gpu::launch(context, wide ? gather_blocks<uint4> : gather_blocks<uint16_t>, blocks, kThreads,
              arguments);
}

bool plain_rows(const DeviceTraits& traits, const GatherKeysArgs& args) {
  const KvFormat format = args.from.k_format;
  return traits.kind == DeviceKind::kCuda && args.step != nullptr &&
         args.from.keys == KeyLayout::kRows && args.from.kv_heads == 1 &&
         (format == KvFormat::kF32 || format == KvFormat::kF16 || format == KvFormat::kBF16);
}

constexpr std::array kKernels = {Kernel<GatherKeysArgs>{"gather_keys/cuda/rows", plain_rows, run}};

}  // namespace

KernelTable<GatherKeysArgs> gather_keys_cuda_kernels() { return kKernels; }

}  // namespace headrace
