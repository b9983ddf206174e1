// grouped_linear over packed block types (grouped.h): `blocks` multiplies quants as multiply_few()
// does, 8 rows of an expert at a time; `unpacked` makes the matrices of some experts at a time.
#include <algorithm>

#include "ops/linear/blocks.cuh"
#include "ops/linear/grouped.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace {
namespace {

using gpu::kBlocksRows;
using gpu::kBlocksWarps;
using gpu::kWarpThreads;

constexpr int kTileRows = 8;        // of the list
constexpr int kBlockGroupsMax = 8;  // of W, of a thread block

template <class T>
struct GroupedBlocksArguments {
  gpu::PackedSegment weight;  // of all experts
  gpu::RowsOf<const T> x;
  const int32_t* rows;    // of x, or null: the list is x
  const int32_t* starts;  // [experts + 1]
  const float* bias;      // [experts][n] or null
  gpu::RowsOf<T> y;
  int32_t experts, expert_groups;
  int32_t block_groups;  // of a thread block: of a gated product pairs of gate and up, one by one
  bool gated, follows_another;
  Activation activation;

  // Group v of an expert in the order in which blocks take them.
  __device__ __forceinline__ int32_t group(int32_t v) const {
    return gated ? v % 2 * (expert_groups / 2) + v / 2 : v;
  }
};

// Rows [first, first + count) of the list are the tile's, of an expert; none: count is 0.
struct ListTile {
  int32_t expert, first, count;
};

// Tile `index` of the list, whose experts' rows are cut into tiles of 8. All threads of the block.
// `starts` may be read before earlier kernels have ended, and a line of the L1 cache may be of a
// layer before.
__device__ __forceinline__ ListTile find_tile(const int32_t* starts, int32_t experts,
                                              int32_t index) {
  __shared__ ListTile found;
  if (threadIdx.x < kWarpThreads) {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 0) found = {0, 0, 0};
    __syncwarp();
    int32_t before = 0;  // tiles of the experts of earlier rounds
    for (int32_t first = 0; first < experts && before <= index; first += kWarpThreads) {
      const int32_t expert = first + lane;
      const int32_t start = expert < experts ? __ldcg(starts + expert) : 0;
      const int32_t rows = expert < experts ? __ldcg(starts + expert + 1) - start : 0;
      const int32_t tiles = (rows + kTileRows - 1) / kTileRows;
      int32_t behind = tiles;  // of the experts to this one
#pragma unroll
      for (int distance = 1; distance < kWarpThreads; distance *= 2) {
        const int32_t more = __shfl_up_sync(0xffffffffu, behind, distance);
        if (lane >= distance) behind += more;
      }
      const int32_t tile = index - before - (behind - tiles);
      if (tile >= 0 && tile < tiles) {
        found = {expert, start + tile * kTileRows, min(rows - tile * kTileRows, kTileRows)};
      }
      before += __shfl_sync(0xffffffffu, behind, kWarpThreads - 1);
    }
  }
  __syncthreads();
  return found;
}

template <class T, int kType>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads, 2)
    multiply_grouped(GroupedBlocksArguments<T> args) {
  using Step = gpu::GroupStep<kType>;
  __shared__ float partial[kBlockGroupsMax][kBlocksWarps][kBlocksRows][kTileRows + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const int32_t chunks = args.weight.chunks;
  const int32_t steps = (chunks + Step::kChunks - 1) / Step::kChunks;
  const int32_t first = static_cast<int32_t>(blockIdx.y) * args.block_groups;
  const int32_t last = min(first + args.block_groups, args.expert_groups);

  if (!args.follows_another) gpu::wait_for_earlier_kernels();
  const ListTile tile = find_tile(args.starts, args.experts, static_cast<int32_t>(blockIdx.x));
  const int32_t expert_group = tile.expert * args.expert_groups;
  const auto group = [&](int32_t v) { return args.weight.group(expert_group + args.group(v)); };
  gpu::Turns turn(first, tile.count > 0 ? last : first, warp, warps, steps);
  Step next;
  if (turn.left()) next.load(group(turn.group), turn.step, chunks, lane);
  if (args.follows_another) gpu::wait_for_earlier_kernels();
  gpu::let_next_kernel_start();  // not sooner: it may read `starts` at once
  if (tile.count == 0) return;
  const int32_t listed = tile.first + min(row, tile.count - 1);  // rows past the end: not stored
  const T* const x = args.x.row(args.rows == nullptr ? listed : args.rows[listed]);

  float sums[4] = {};
  while (turn.left()) {
    const Step now = next;
    const gpu::Turns current = turn;
    turn.next();
    if (turn.left()) next.load(group(turn.group), turn.step, chunks, lane);
    gpu::multiply_step<T, kType>(sums, now, x, current.step * Step::kChunks, chunks, quad);
    if (turn.group == current.group) continue;
    auto& of_group = partial[current.group - first][warp];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of_group[row + 8 * (i / 2)][2 * quad + i % 2] = sums[i];
      sums[i] = 0.0f;
    }
  }
  __syncthreads();
  const auto sum_of = [&](int32_t v, int of_group, int column) {
    float sum = 0.0f;
    for (int from = 0; from < min(warps, steps); ++from) {
      sum += partial[v - first][from][of_group][column];
    }
    if (args.bias == nullptr) return sum;
    return sum + args.bias[(expert_group + args.group(v)) * kBlocksRows + of_group];
  };
  const int32_t parts = args.gated ? 2 : 1;
  const int32_t outputs = (last - first) / parts * kBlocksRows;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * tile.count;
       i += static_cast<int>(blockDim.x)) {
    const int32_t of_block = i % outputs, column = i / outputs;
    const int32_t v = first + of_block / kBlocksRows * parts, of_group = of_block % kBlocksRows;
    float value = sum_of(v, of_group, column);
    if (args.gated) {
      value = gpu::activated(args.activation, value) *
              gpu::gated_up(args.activation, sum_of(v + 1, of_group, column));
    }
    args.y.row(tile.first + column)[v / parts * kBlocksRows + of_group] = gpu::from_float<T>(value);
  }
}

// Tiles of 8 rows that a list of so many can have.
int64_t tiles_max(const GroupedLinearArgs& args) {
  return std::min<int64_t>(args.experts(), args.y.rows()) + args.y.rows() / kTileRows;
}

template <class T>
void multiply_blocks(OpContext& context, const GroupedLinearArgs& args) {
  const LinearWeight::Segment& segment = args.weight->segments().front();
  const auto groups = static_cast<int32_t>(args.expert_rows() / kLinearGroupRows);
  const int64_t tiles = tiles_max(args);
  // Two blocks a multiprocessor where their groups allow it, for as many tiles as are likely.
  const int64_t likely = std::min<int64_t>(args.experts(), args.rows_about());
  const int64_t share =
      std::max<int64_t>(likely, 1) * groups / (2 * context.device.traits().sm_count);
  const int32_t parts = args.gate ? 2 : 1;
  const auto block_groups =
      static_cast<int32_t>(std::clamp<int64_t>(share, parts, kBlockGroupsMax) / parts * parts);
  const GroupedBlocksArguments<T> arguments{
      .weight = gpu::packed_segment(segment, args.weight->k()),
      .x = gpu::rows_of<T>(args.x),
      .rows = args.rows.empty() ? nullptr : args.rows.data(),
      .starts = args.starts.data(),
      .bias = args.bias,
      .y = gpu::rows_of<T>(args.y),
      .experts = static_cast<int32_t>(args.experts()),
      .expert_groups = groups,
      .block_groups = block_groups,
      .gated = args.gate.has_value(),
      .follows_another = args.follows_another,
      .activation = args.gate.value_or(Activation::kSilu)};
  gpu::with_block_type(segment.dtype, [&]<int kType>() {
    const unsigned steps = gpu::blocks_for(arguments.weight.chunks, gpu::GroupStep<kType>::kChunks);
    const int warps = std::min(static_cast<int>(steps), kBlocksWarps);
    const dim3 blocks(static_cast<unsigned>(tiles), gpu::blocks_for(groups, block_groups));
    gpu::launch(context, multiply_grouped<T, kType>, blocks, warps * kWarpThreads, arguments);
  });
}

}  // namespace

bool grouped_blocks_fit(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  constexpr int64_t kAlignment = 8;  // of what a lane reads of x
  return traits.kind == DeviceKind::kCuda &&
         (args.x.dtype == DType::kF16 || args.x.dtype == DType::kBF16) &&
         args.weight->segments().size() == 1 &&
         experts_can_be_packed(args.expert_rows(), args.gate.has_value()) &&
         args.gate != Activation::kTanh && args.gate != Activation::kSigmoid &&
         reinterpret_cast<uintptr_t>(args.x.data) % kAlignment == 0 &&
         args.x.row_stride % kAlignment == 0;
}

void run_grouped_blocks(OpContext& context, const GroupedLinearArgs& args) {
  gpu::with_half_type(args.x.dtype,
                      [&]<class T>(gpu::ElementType<T>) { multiply_blocks<T>(context, args); });
}

bool grouped_unpacked_fits(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return grouped_blocks_fit(traits, args) && !traits.batch_invariant;
}

void run_grouped_unpacked(OpContext& context, const GroupedLinearArgs& args) {
  const LinearWeight& weight = *args.weight;
  const Workspace::Mark mark(context.workspace);
  std::byte* const scratch =
      context.workspace.take(grouped_workspace_bytes(weight, args.experts()));
  const int64_t n = args.expert_rows(),
                at_a_time = grouped_unpacked_experts(weight, args.experts());
  for (int64_t first = 0; first < args.experts(); first += at_a_time) {
    const int64_t count = std::min(at_a_time, args.experts() - first);
    const TensorView matrices(scratch, args.x.dtype, Shape{count * n, weight.k()});
    unpack_block_rows(context, weight, first * n, matrices);
    const LinearWeight part = LinearWeight::matrix_at(context.device, matrices);
    GroupedLinearArgs product = args;
    product.weight = &part;
    product.starts =
        args.starts.subspan(static_cast<size_t>(first), static_cast<size_t>(count) + 1);
    product.bias = args.bias == nullptr ? nullptr : args.bias + first * n;
    product.listed_experts = args.listed_experts > 0 ? args.listed_experts : args.experts();
    product.follows_another = false;  // W is what the kernel before this one makes
    const DeviceTraits& traits = context.device.traits();
    if (!grouped_tiles_fit(traits, product)) {
      note_fallback(context.device, "grouped_linear/cuda/any", op_cost(product));
      run_grouped_any(context, product);
      continue;
    }
    run_grouped_tiles(context, product, plan_grouped({product.rows_about(), count, n}, traits));
  }
}

}  // namespace headrace
