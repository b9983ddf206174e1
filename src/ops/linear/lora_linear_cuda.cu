// The kernels of lora_linear on a GPU: t = x A^T over the rows of each task, then y += scale t B^T.
// What they read of an adapter does not depend on the kernels before, so that it is on its way in
// registers before they have ended. Sums of a row follow from K alone: blocks of threads leave sums
// of their columns, which the second kernel adds up in their order.
#include <algorithm>
#include <array>
#include <iterator>
#include <type_traits>

#include "gpu/f16_range.cuh"
#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/lora_layout.h"
#include "ops/linear/lora_linear.h"

namespace headrace {
namespace gpu {
namespace {

constexpr int kLoraRowTile = 8;                            // of a product
constexpr int kLoraSums = kLoraTaskRows * kLoraTileRanks;  // of a task and a tile of ranks

// Of both kernels. `t` is [splits][tasks][factors * rank_tiles][kLoraTaskRows][kLoraTileRanks].
template <class T>
struct LoraParameters {
  RowsOf<const T> x;
  RowsOf<T> y;
  const LoraTask* tasks;
  int task_count;
  LoraSlotsView slots;
  LoraPlace places[kLoraPlacesMax];
  int place_count;
  int rank_tiles;  // of a factor, at most
  int64_t columns;
  int splits;
  float* t;

  __device__ __forceinline__ LoraScale scale(int slot, int factor) const {
    return slots.scales[int64_t{slot} * slots.factor_count + places[factor].index];
  }
  __device__ __forceinline__ const T* in_slot(int slot, int64_t offset) const {
    return reinterpret_cast<const T*>(slots.memory + slot * slots.slot_bytes + offset);
  }
  __device__ __forceinline__ float* sums(int split, int task, int tile) const {
    const int64_t first = int64_t{split} * task_count + task;
    return t + (first * (place_count * rank_tiles) + tile) * kLoraSums;
  }
};

__device__ __forceinline__ bool has_lora_rows(const LoraTask& task) {
  return task.count > 0 && task.slot >= 0;
}
// A block of threads with nothing to do goes at once, but for one: the kernel must not have ended
// before those before it.
__device__ __forceinline__ void leave_idle_block() {
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) wait_for_earlier_kernels();
}

template <class T>
__device__ __forceinline__ void multiply_words(float (&c)[4], const uint4& a, uint32_t b0,
                                               uint32_t b1) {
  const uint32_t words[4] = {a.x, a.y, a.z, a.w};
  multiply_add<T>(c, words, b0, b1);
}

// Blocks: [splits of K, factors x tiles of ranks, tasks]. Each warp has its tiles of A in registers
// and multiplies them by 8 rows of the task after the other.
template <class T>
__global__ __launch_bounds__(kLoraThreads, 4) void lora_shrink(LoraParameters<T> p) {
  let_next_kernel_start();
  const int factor = static_cast<int>(blockIdx.y) / p.rank_tiles;
  const int rank_tile = static_cast<int>(blockIdx.y) % p.rank_tiles;
  const LoraTask& task = p.tasks[blockIdx.z];
  if (!has_lora_rows(task) || rank_tile >= p.scale(task.slot, factor).rank_tiles)
    return leave_idle_block();

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4, quad = lane % 4;
  const int first = (static_cast<int>(blockIdx.x) * kLoraWarps + warp) * kLoraWarpTiles;
  const auto tiles = static_cast<int>(lora_tiles(p.columns, kLoraColumns));
  uint4 a[kLoraWarpTiles][kLoraAProducts];
  const T* const from =
      p.in_slot(task.slot, p.places[factor].a) + lora_a_tile(rank_tile, first, p.columns);
#pragma unroll
  for (int i = 0; i < kLoraWarpTiles; ++i) {
#pragma unroll
    for (int product = 0; product < kLoraAProducts; ++product) {
      a[i][product] = first + i < tiles
                          ? load_streamed(from + i * kLoraATile + lora_lane(product, lane))
                          : uint4{0, 0, 0, 0};
    }
  }
  wait_for_earlier_kernels();

  __shared__ float sums[kLoraWarps][kLoraTaskRows][kLoraTileRanks];
  const int row_tiles = (task.count + kLoraRowTile - 1) / kLoraRowTile;
  for (int row_tile = 0; row_tile < row_tiles; ++row_tile) {
    const int row = row_tile * kLoraRowTile + group;
    const T* const x = row < task.count ? p.x.row(task.rows[row]) : nullptr;
    uint4 values[kLoraWarpTiles];
#pragma unroll
    for (int i = 0; i < kLoraWarpTiles; ++i) {
      const int column = (first + i) * kLoraColumns + quad * kLoraLaneItems;
      values[i] = x != nullptr && column < p.columns ? *reinterpret_cast<const uint4*>(x + column)
                                                     : uint4{0, 0, 0, 0};
    }
    float c[4] = {};
#pragma unroll
    for (int i = 0; i < kLoraWarpTiles; ++i) {
      multiply_words<T>(c, a[i][0], values[i].x, values[i].y);
      multiply_words<T>(c, a[i][1], values[i].z, values[i].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[warp][row_tile * kLoraRowTile + 2 * quad + i % 2][group + 8 * (i / 2)] = c[i];
    }
  }
  __syncthreads();
  float* const to = p.sums(static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.z),
                           static_cast<int>(blockIdx.y));
  for (int i = static_cast<int>(threadIdx.x); i < task.count * kLoraTileRanks; i += kLoraThreads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kLoraWarps; ++w) {
      sum += sums[w][i / kLoraTileRanks][i % kLoraTileRanks];
    }
    to[i] = sum;
  }
}

// As large as a type may have it: infinities and NaN stay what they are.
template <class T>
__device__ __forceinline__ float in_range_of(float value) {
  if constexpr (std::is_same_v<T, __half>) {
    if (beyond_f16(value)) return copysignf(kF16Most, value);
  }
  return value;
}

// Of a row of t, the ranks that a lane gives to a product: two pairs, each as a number of the type
// and what that has lost.
template <class T>
struct LoraHidden {
  uint32_t high[2], low[2];

  __device__ __forceinline__ static LoraHidden of(const LoraParameters<T>& p, int task, int tile,
                                                  int row, int quad, float scale) {
    float values[2][2] = {};
    for (int split = 0; row >= 0 && split < p.splits; ++split) {
      const float* const from = p.sums(split, task, tile) + row * kLoraTileRanks + 2 * quad;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const float2 sums = *reinterpret_cast<const float2*>(from + 8 * pair);
        values[pair][0] += sums.x;
        values[pair][1] += sums.y;
      }
    }
    LoraHidden hidden;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float high[2], low[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float value = in_range_of<T>(scale * values[pair][i]);
        high[i] = to_float(from_float<T>(value));
        low[i] = value - high[i];
      }
      hidden.high[pair] = packed<T>(high[0], high[1]);
      hidden.low[pair] = packed<T>(low[0], low[1]);
    }
    return hidden;
  }
};

template <class T>
__device__ __forceinline__ void add_sums(T* y, const float (&sums)[kLoraBProducts][4], int of_pair,
                                         int64_t columns_left) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * kLoraLaneItems >= columns_left) return;
    T* const at = y + half * kLoraLaneItems;
    auto values = Vector<T, kLoraLaneItems>::load(at);
#pragma unroll
    for (int i = 0; i < kLoraLaneItems; ++i) {
      const float sum = sums[half * 4 + i / 2][of_pair + 2 * (i % 2)];
      values.values[i] = from_float<T>(to_float(values.values[i]) + sum);
    }
    values.store(at);
  }
}

// Blocks: [tiles of B's rows of all factors, a warp each; tasks].
template <class T>
__global__ __launch_bounds__(kLoraThreads) void lora_expand(LoraParameters<T> p) {
  let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4, quad = lane % 4;
  int factor = 0, tile = static_cast<int>(blockIdx.x) * kLoraWarps + warp;
  for (; factor < p.place_count; ++factor) {
    const auto of_factor = static_cast<int>(lora_tiles(p.places[factor].columns, kLoraOutputs));
    if (tile < of_factor) break;
    tile -= of_factor;
  }
  const LoraTask& task = p.tasks[blockIdx.y];
  const LoraScale scale =
      factor < p.place_count && has_lora_rows(task) ? p.scale(task.slot, factor) : LoraScale{};
  if (scale.rank_tiles == 0) return leave_idle_block();

  const LoraPlace& place = p.places[factor];
  const T* const from = p.in_slot(task.slot, place.b) + lora_b_tile(tile, 0, scale.rank_tiles);
  uint4 b[kLoraBProducts];
  const auto load_tile = [&](int rank_tile) {
#pragma unroll
    for (int i = 0; i < kLoraBProducts; ++i) {
      b[i] =
          __ldg(reinterpret_cast<const uint4*>(from + rank_tile * kLoraBTile + lora_lane(i, lane)));
    }
  };
  load_tile(0);
  wait_for_earlier_kernels();

  const int first_column = tile * kLoraOutputs + group * 2 * kLoraLaneItems;
  for (int first = 0; first < task.count; first += kLoraRowTile) {
    const int row = first + group < task.count ? first + group : -1;
    float sums[kLoraBProducts][4] = {};
    for (int rank_tile = 0; rank_tile < scale.rank_tiles; ++rank_tile) {
      if (scale.rank_tiles > 1 && first + rank_tile > 0) load_tile(rank_tile);
      const auto hidden =
          LoraHidden<T>::of(p, static_cast<int>(blockIdx.y), factor * p.rank_tiles + rank_tile, row,
                            quad, scale.scale);
#pragma unroll
      for (int i = 0; i < kLoraBProducts; ++i) {
        multiply_words<T>(sums[i], b[i], hidden.high[0], hidden.high[1]);
        multiply_words<T>(sums[i], b[i], hidden.low[0], hidden.low[1]);
      }
    }
#pragma unroll
    for (int of_pair = 0; of_pair < 2; ++of_pair) {
      const int to = first + 2 * quad + of_pair;
      if (to >= task.count) continue;
      add_sums<T>(p.y.row(task.rows[to]) + place.first_column + first_column, sums, of_pair,
                  place.columns - first_column);
    }
  }
}

// --- any shape and F32 ---

constexpr int kLoraAnyThreads = 128;

// Blocks: [factors x ranks, a warp each; tasks].
template <class T>
__global__ __launch_bounds__(kLoraAnyThreads) void lora_shrink_any(LoraParameters<T> p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int index = static_cast<int>(blockIdx.x * kLoraAnyThreads + threadIdx.x) / kWarpThreads;
  const int ranks = p.rank_tiles * kLoraTileRanks;
  const int factor = index / ranks, rank = index % ranks;
  const LoraTask& task = p.tasks[blockIdx.y];
  if (factor >= p.place_count || !has_lora_rows(task)) return;
  if (rank / kLoraTileRanks >= p.scale(task.slot, factor).rank_tiles) return;
  const T* const a = p.in_slot(task.slot, p.places[factor].a);
  float* const to =
      p.sums(0, static_cast<int>(blockIdx.y), factor * p.rank_tiles + rank / kLoraTileRanks);
  for (int row = 0; row < task.count; ++row) {
    const T* const x = p.x.row(task.rows[row]);
    float sum = 0;
    for (int64_t k = lane; k < p.columns; k += kWarpThreads) {
      sum = fmaf(to_float(x[k]), to_float(a[lora_a_index(rank, k, p.columns)]), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) to[row * kLoraTileRanks + rank % kLoraTileRanks] = sum;
  }
}

// Blocks: [columns of a factor, a thread each; tasks; factors].
template <class T>
__global__ __launch_bounds__(kLoraAnyThreads) void lora_expand_any(LoraParameters<T> p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int factor = static_cast<int>(blockIdx.z);
  const int64_t n = int64_t{blockIdx.x} * kLoraAnyThreads + threadIdx.x;
  const LoraPlace& place = p.places[factor];
  const LoraTask& task = p.tasks[blockIdx.y];
  if (n >= place.columns || !has_lora_rows(task)) return;
  const LoraScale scale = p.scale(task.slot, factor);
  if (scale.rank_tiles == 0) return;
  const T* const b = p.in_slot(task.slot, place.b);
  for (int row = 0; row < task.count; ++row) {
    float sum = 0;
    for (int rank = 0; rank < scale.rank_tiles * kLoraTileRanks; ++rank) {
      const float* const t =
          p.sums(0, static_cast<int>(blockIdx.y), factor * p.rank_tiles + rank / kLoraTileRanks);
      sum = fmaf(scale.scale * t[row * kLoraTileRanks + rank % kLoraTileRanks],
                 to_float(b[lora_b_index(n, rank, scale.rank_tiles)]), sum);
    }
    T& y = p.y.row(task.rows[row])[place.first_column + n];
    y = from_float<T>(to_float(y) + sum);
  }
}

// --- launches ---

template <class T>
LoraParameters<T> lora_parameters(OpContext& context, const LoraLinearArgs& args) {
  LoraParameters<T> p{
      .x = rows_of<T>(args.x),
      .y = rows_of<T>(args.y),
      .tasks = args.tasks.data(),
      .task_count = static_cast<int>(args.tasks.size()),
      .slots = *args.slots,
      .place_count = static_cast<int>(args.places.size()),
      .rank_tiles = static_cast<int>(lora_tiles(args.slots->rank_max, kLoraTileRanks)),
      .columns = args.x.columns(),
      .splits = static_cast<int>(lora_splits(args.x.columns()))};
  std::copy(args.places.begin(), args.places.end(), p.places);
  const int64_t sums = int64_t{p.splits} * p.task_count * p.place_count * p.rank_tiles * kLoraSums;
  p.t = context.workspace.take_array<float>(sums);
  return p;
}

template <class T>
void launch_lora_tiles(OpContext& context, const LoraLinearArgs& args) {
  const LoraParameters<T> p = lora_parameters<T>(context, args);
  int64_t outputs = 0;
  for (const LoraPlace& place : args.places) outputs += lora_tiles(place.columns, kLoraOutputs);
  const auto tasks = static_cast<unsigned>(p.task_count);
  launch(context, lora_shrink<T>,
         dim3(static_cast<unsigned>(p.splits), static_cast<unsigned>(p.place_count * p.rank_tiles),
              tasks),
         kLoraThreads, p);
  launch(context, lora_expand<T>, dim3(blocks_for(outputs, kLoraWarps), tasks), kLoraThreads, p);
}

void run_lora_tiles(OpContext& context, const LoraLinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  if (args.x.dtype == DType::kF16) return launch_lora_tiles<__half>(context, args);
  launch_lora_tiles<__nv_bfloat16>(context, args);
}

void run_lora_any(OpContext& context, const LoraLinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  with_float_type(args.x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const LoraParameters<T> p = lora_parameters<T>(context, args);
    int64_t columns = 0;
    for (const LoraPlace& place : args.places) columns = std::max(columns, place.columns);
    const auto tasks = static_cast<unsigned>(p.task_count);
    const int64_t ranks = int64_t{p.place_count} * p.rank_tiles * kLoraTileRanks;
    launch(context, lora_shrink_any<T>,
           dim3(blocks_for(ranks, kLoraAnyThreads / kWarpThreads), tasks), kLoraAnyThreads, p);
    launch(context, lora_expand_any<T>,
           dim3(blocks_for(columns, kLoraAnyThreads), tasks, static_cast<unsigned>(p.place_count)),
           kLoraAnyThreads, p);
  });
}

bool lora_any_fits(const DeviceTraits& traits, const LoraLinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.slots != nullptr;
}

bool lora_tiles_fit(const DeviceTraits& traits, const LoraLinearArgs& args) {
  if (!lora_any_fits(traits, args) || args.x.dtype == DType::kF32) return false;
  if (!rows_aligned(args.x) || !rows_aligned(args.y)) return false;
  return args.x.columns() % kLoraLaneItems == 0 &&
         std::ranges::all_of(args.places, [](const LoraPlace& place) {
           return place.columns % kLoraLaneItems == 0 && place.first_column % kLoraLaneItems == 0;
         });
}

constexpr std::array kLoraLinear = {
    Kernel<LoraLinearArgs>{"lora_linear/cuda/tiles", lora_tiles_fit, run_lora_tiles},
    Kernel<LoraLinearArgs>{.name = "lora_linear/cuda/any",
                           .supports = lora_any_fits,
                           .run = run_lora_any,
                           .is_fallback = true}};

}  // namespace
}  // namespace gpu

KernelTable<LoraLinearArgs> lora_linear_cuda_kernels() { return gpu::kLoraLinear; }

}  // namespace headrace
