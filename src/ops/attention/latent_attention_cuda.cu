// Attention over latents (DeepSeek-AI, 2024): one key of 576 components for all heads, whose first
// 512 are its value, so that what is read of the cache serves both products.
//
// A thread block takes one item after the other: 16 rows of a tile (heads of one position, or of
// several where they are fewer), and the tile's keys or, where a step has few items, a share of
// them. It brings 32 keys at a time into one of two places in shared memory, ahead of their use:
//   S [16, 32] = Q K'    a warp 8 keys        O [16, 512] += P V    a warp 128 components
// Shares leave sums, largest and total in the workspace; a kernel behind this one merges them, in
// order. How many shares there are depends on the step's items alone, so that a row's bits depend
// on what runs beside it but where batch invariance is asked for: then nothing is shared out.
#include <algorithm>

#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "gpu/thread_copy.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/latent_plan.h"

namespace headrace {
namespace {

constexpr int kKeyDim = kLatentKeyDim, kValueDim = kLatentValueDim;
constexpr int kRows = kLatentTileRows, kKeys = 32;
constexpr int kWarps = 4, kThreads = kWarps * gpu::kWarpThreads;
constexpr int kUnits = kKeyDim / 8;  // of 16 bytes, of a key
constexpr int kPitch = kKeyDim + 8;  // rows 16 bytes further than whole turns of the banks
constexpr int kColumnsOfWarp = kValueDim / kWarps;
constexpr int kColumnTiles = kColumnsOfWarp / 8;
constexpr int kThreadsOfRow = kThreads / kRows, kKeysOfThread = kKeys / kThreadsOfRow;
static_assert(kThreadsOfRow == 8 && kKeysOfThread == 4);

template <class T>
struct alignas(16) LatentShared {
  T q[kRows][kPitch];
  T keys[2][kKeys][kPitch];
  float scores[kRows][kKeys + 4];
  T weights[kRows][kKeys + 8];
  float factor[kRows], largest[kRows], total[kRows];
};

template <class T>
struct LatentArguments {
  gpu::AttentionArguments<T> attention;
  float* partials;     // [item][16][kLatentPartialFloats] or null: nothing is shared out
  LatentShares* rows;  // [T heads] or null, with partials
};

// One item.
struct LatentItem {
  AttentionTileWork tile;
  int32_t first_row;  // of the tile's
  int32_t from, to;   // keys
  int32_t share, shares;
  int32_t partial;  // its number
};

template <class T>
class LatentBlock {
  using Args = LatentArguments<T>;

 public:
  __device__ LatentBlock(const Args& args, LatentShared<T>& shared)
      : args_(args),
        attention_(args.attention),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / gpu::kWarpThreads),
        lane_(thread_ % gpu::kWarpThreads) {}

  __device__ void run() {
    const int32_t tiles = attention_.header().prefill_count;
    const int32_t groups = max(1, (attention_.group + kRows - 1) / kRows);
    const int32_t most = args_.partials == nullptr
                             ? 1
                             : min(kLatentSharesMax, max(1, static_cast<int32_t>(gridDim.x) /
                                                                max(1, tiles * groups)));
    const int32_t items = tiles * groups * most;
    for (int32_t i = static_cast<int32_t>(blockIdx.x); i < items;
         i += static_cast<int32_t>(gridDim.x)) {
      LatentItem item;
      item.tile = attention_.prefill_tiles()[i / (groups * most)];
      item.first_row = i / most % groups * kRows;
      item.share = i % most;
      item.partial = i;
      if (item.first_row < item.tile.row_count * attention_.group && share_keys(item, most)) {
        attend(item);
      }
    }
  }

 private:
  // Which keys are this item's; false: none.
  __device__ static bool share_keys(LatentItem& item, int32_t most) {
    const int32_t count = item.tile.key_last - item.tile.key_first;
    const int32_t wanted = min(most, max(1, count / kLatentShareKeysMin));
    const int32_t each = ((count + wanted - 1) / wanted + kKeys - 1) / kKeys * kKeys;
    item.shares = (count + each - 1) / each;  // those that have a key
    if (item.share >= item.shares) return false;
    item.from = item.tile.key_first + item.share * each;
    item.to = min(item.tile.key_last, item.from + each);
    return true;
  }

  __device__ int32_t position_of(const LatentItem& item, int row) const {
    return item.tile.position + (item.first_row + row) / attention_.group;
  }
  __device__ bool is_row(const LatentItem& item, int row) const {
    return item.first_row + row < item.tile.row_count * attention_.group;
  }
  __device__ int32_t batch_row(const LatentItem& item, int row) const {
    return item.tile.row_first + (item.first_row + row) / attention_.group;
  }
  __device__ int32_t head_of(const LatentItem& item, int row) const {
    return (item.first_row + row) % attention_.group;
  }

  __device__ void attend(const LatentItem& item) {
    __syncthreads();  // the item before has been read
    load_queries(item);
    load_keys(item, item.from, 0);
    gpu::end_group_of_copies();
    clear();
    const int32_t steps = (item.to - item.from + kKeys - 1) / kKeys;
    for (int32_t step = 0; step < steps; ++step) {
      const int32_t first = item.from + step * kKeys;
      gpu::wait_for_copies_but<0>();
      __syncthreads();  // all have what they and others asked for, and have read the other place
      if (step + 1 < steps) load_keys(item, first + kKeys, (step + 1) % 2);
      gpu::end_group_of_copies();
      multiply_keys(item, first, step % 2);
      __syncthreads();
      weigh();
      __syncthreads();
      multiply_values(step % 2);
    }
    finish(item);
  }

  __device__ void load_queries(const LatentItem& item) {
    for (int i = thread_; i < kRows * kUnits; i += kThreads) {
      const int row = i / kUnits, unit = i % kUnits;
      T* const to = &shared_.q[row][unit * 8];
      if (is_row(item, row)) {
        gpu::copy_access(
            to, attention_.q.row(batch_row(item, row)) + head_of(item, row) * kKeyDim + unit * 8);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      }
    }
  }

  // What lies behind the item's keys is zero: it may never have been written, and a weight of 0
  // would not hide a NaN.
  __device__ void load_keys(const LatentItem& item, int32_t first, int place) {
    for (int i = thread_; i < kKeys * kUnits; i += kThreads) {
      const int key = i / kUnits, unit = i % kUnits;
      T* const to = &shared_.keys[place][key][unit * 8];
      if (first + key < item.to) {
        gpu::copy_access(to, attention_.keys +
                                 attention_.key_offset(item.tile.block_table, first + key, 0) +
                                 unit * 8);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      }
    }
  }

  __device__ void clear() {
    largest_ = -INFINITY;
    total_ = 0.0f;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[n][j] = 0.0f;
    }
  }

  // Scores in base 2 of this warp's eight keys; -inf where a row may not see one.
  __device__ void multiply_keys(const LatentItem& item, int32_t first, int place) {
    constexpr int kSums = 4;  // a product waits for the one that it adds to
    float sums[kSums][4] = {};
    const uint32_t q = gpu::shared_address(&shared_.q[lane_ % 16][lane_ / 16 * 8]);
    const uint32_t k =
        gpu::shared_address(&shared_.keys[place][warp_ * 8 + lane_ % 8][lane_ / 8 * 8]);
#pragma unroll 6
    for (int s = 0; s < kKeyDim / 16; s += 2) {
      uint32_t b[4];
      gpu::load_matrices(b, k + s * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        gpu::load_matrices(a, q + (s + half) * 32);
        gpu::multiply_add<T>(sums[(s + half) % kSums], a, b[2 * half], b[2 * half + 1]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float product = sums[0][j] + sums[1][j] + (sums[2][j] + sums[3][j]);
      const int row = lane_ / 4 + j / 2 * 8, column = warp_ * 8 + lane_ % 4 * 2 + j % 2;
      const int32_t key = first + column, last = position_of(item, row);
      const bool seen = key <= last && key >= attention_.first_key(last) && key < item.to;
      const float score = attention_.scores.cap > 0 ? attention_.scores.capped(product)
                                                    : product * attention_.scores.factor;
      shared_.scores[row][column] = seen ? score : -INFINITY;
    }
  }

  // Eight threads a row: its weights, and what its sums are multiplied by.
  __device__ void weigh() {
    const int row = thread_ / kThreadsOfRow, part = thread_ % kThreadsOfRow;
    const auto scores =
        *reinterpret_cast<const float4*>(&shared_.scores[row][part * kKeysOfThread]);
    float most = fmaxf(fmaxf(scores.x, scores.y), fmaxf(scores.z, scores.w));
#pragma unroll
    for (int distance = 1; distance < kThreadsOfRow; distance *= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    }
    const float grown = fmaxf(largest_, most);
    const float origin = gpu::softmax_origin(grown);
    const float keep = gpu::exp2_fast(largest_ - origin);
    largest_ = grown;
    const float weights[] = {gpu::exp2_fast(scores.x - origin), gpu::exp2_fast(scores.y - origin),
                             gpu::exp2_fast(scores.z - origin), gpu::exp2_fast(scores.w - origin)};
    float sum = weights[0] + weights[1] + (weights[2] + weights[3]);
#pragma unroll
    for (int distance = 1; distance < kThreadsOfRow; distance *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    total_ = total_ * keep + sum;
    *reinterpret_cast<uint2*>(&shared_.weights[row][part * kKeysOfThread]) =
        uint2{gpu::packed<T>(weights[0], weights[1]), gpu::packed<T>(weights[2], weights[3])};
    if (part == 0) shared_.factor[row] = keep;
  }

  __device__ void multiply_values(int place) {
    const float keep[] = {shared_.factor[lane_ / 4], shared_.factor[lane_ / 4 + 8]};
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[n][j] *= keep[j / 2];
    }
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t a[4];
      gpu::load_matrices(
          a, gpu::shared_address(&shared_.weights[lane_ % 16][s * 16 + lane_ / 16 * 8]));
      const int key = s * 16 + lane_ % 8 + lane_ / 8 % 2 * 8;
      const uint32_t v =
          gpu::shared_address(&shared_.keys[place][key][warp_ * kColumnsOfWarp + lane_ / 16 * 8]);
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        uint32_t b[4];
        gpu::load_matrices_transposed(b, v + n * 16);
        gpu::multiply_add<T>(sums_[n], a, b[0], b[1]);
        gpu::multiply_add<T>(sums_[n + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ void finish(const LatentItem& item) {
    if (thread_ % kThreadsOfRow == 0) {
      shared_.largest[thread_ / kThreadsOfRow] = largest_;
      shared_.total[thread_ / kThreadsOfRow] = total_;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_ / 4 + half * 8;
      if (!is_row(item, row)) continue;
      if (item.shares == 1) {
        write_row(item, row, half);
      } else {
        leave_row(item, row, half);
      }
      if (args_.rows != nullptr && item.share == 0 && warp_ == 0 && lane_ % 4 == 0) {
        args_.rows[batch_row(item, row) * attention_.group + head_of(item, row)] = {
            item.partial * kRows + row, item.shares};
      }
    }
  }

  __device__ void write_row(const LatentItem& item, int row, int half) const {
    const float scale = 1.0f / shared_.total[row];
    T* const out = attention_.out.row(batch_row(item, row)) + head_of(item, row) * kValueDim +
                   warp_ * kColumnsOfWarp + lane_ % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      *reinterpret_cast<uint32_t*>(out + n * 8) =
          gpu::packed<T>(sums_[n][2 * half] * scale, sums_[n][2 * half + 1] * scale);
    }
  }

  __device__ void leave_row(const LatentItem& item, int row, int half) const {
    float* const to = args_.partials + int64_t{item.partial * kRows + row} * kLatentPartialFloats;
    if (warp_ == 0 && lane_ % 4 == 0) {
      to[kValueDim] = shared_.largest[row];
      to[kValueDim + 1] = shared_.total[row];
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      *reinterpret_cast<float2*>(to + warp_ * kColumnsOfWarp + n * 8 + lane_ % 4 * 2) =
          float2{sums_[n][2 * half], sums_[n][2 * half + 1]};
    }
  }

  const Args& args_;
  const gpu::AttentionArguments<T>& attention_;
  LatentShared<T>& shared_;
  const int thread_, warp_, lane_;
  float largest_, total_;  // of row thread / 8
  float sums_[kColumnTiles][4];
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    attend_latents(const __grid_constant__ LatentArguments<T> args) {
  extern __shared__ __align__(16) std::byte dynamic[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  LatentBlock<T>(args, *reinterpret_cast<LatentShared<T>*>(dynamic)).run();
}

// A block a row and head: the merge of its shares, and zeros where a row is padding.
template <class T>
__global__ void __launch_bounds__(kThreads)
    merge_latents(const __grid_constant__ LatentArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const gpu::AttentionArguments<T>& attention = args.attention;
  const auto row = static_cast<int32_t>(blockIdx.x) / attention.group;
  const auto head = static_cast<int32_t>(blockIdx.x) % attention.group;
  const auto column = static_cast<int32_t>(threadIdx.x) * 4;
  T* const out = attention.out.row(row) + head * kValueDim + column;
  if (row >= attention.header().row_count) {
    *reinterpret_cast<uint2*>(out) = uint2{0, 0};
    return;
  }
  if (args.rows == nullptr) return;
  const LatentShares shares = args.rows[blockIdx.x];
  if (shares.count == 1) return;
  // Of neighbouring items, 16 rows each.
  const auto partial = [&](int32_t share) {
    return args.partials + int64_t{shares.first + share * kRows} * kLatentPartialFloats;
  };
  float largest = -INFINITY;
  for (int32_t s = 0; s < shares.count; ++s) largest = fmaxf(largest, partial(s)[kValueDim]);
  const float origin = gpu::softmax_origin(largest);
  float total = 0.0f;
  float4 sum{0, 0, 0, 0};
  for (int32_t s = 0; s < shares.count; ++s) {
    const float* const from = partial(s);
    const float weight = gpu::exp2_fast(from[kValueDim] - origin);
    // Rows of partial results are 8 bytes apart from multiples of 16.
    const auto low = *reinterpret_cast<const float2*>(from + column);
    const auto high = *reinterpret_cast<const float2*>(from + column + 2);
    total += weight * from[kValueDim + 1];
    sum = {fmaf(weight, low.x, sum.x), fmaf(weight, low.y, sum.y), fmaf(weight, high.x, sum.z),
           fmaf(weight, high.y, sum.w)};
  }
  const float scale = 1.0f / total;
  *reinterpret_cast<uint2*>(out) = uint2{gpu::packed<T>(sum.x * scale, sum.y * scale),
                                         gpu::packed<T>(sum.z * scale, sum.w * scale)};
}

template <class T>
void run_latents(OpContext& context, const AttentionArgs& args) {
  constexpr int kBytes = sizeof(LatentShared<T>);
  static_assert(2 * (kBytes + 1024) <= 228 * 1024);
  const AttentionPlanShape& shape = args.plan->shape;
  const Workspace::Mark mark(context.workspace);
  const int64_t rows = args.q.rows(), heads = args.q.columns() / kKeyDim;
  LatentArguments<T> arguments{.attention = gpu::attention_arguments<T>(args, nullptr, nullptr),
                               .partials = nullptr,
                               .rows = nullptr};
  const bool shares = !shape.batch_invariant && rows * heads <= kRows * latent_blocks(shape);
  if (shares) {
    std::byte* const memory = context.workspace.take(latent_partial_bytes(shape));
    arguments.partials = reinterpret_cast<float*>(memory);
    arguments.rows = reinterpret_cast<LatentShares*>(memory + latent_sums_bytes(shape));
  }
  gpu::check_launch(gpu::launch_overlapped(attend_latents<T>,
                                           {.blocks = static_cast<unsigned>(latent_blocks(shape)),
                                            .threads = kThreads,
                                            .shared_bytes = kBytes},
                                           gpu::stream_of(context), arguments));
  // Recorded steps may be padded.
  if (shares || rows <= shape.sequences_max) {
    gpu::launch(context, merge_latents<T>, static_cast<unsigned>(rows * heads), kThreads,
                arguments);
  }
}

}  // namespace

bool latent_attention_fits(const DeviceTraits& traits, const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability >= 80 &&
         args.plan != nullptr && args.plan->shape.latents && kv.keys == KeyLayout::kRows &&
         kv.v_aliases_k && kv.kv_heads == 1 && kv.k_dim == kKeyDim && kv.v_dim == kValueDim &&
         (args.q.dtype == DType::kF16 || args.q.dtype == DType::kBF16) &&
         !has_scales(kv.k_format) && kv_element(kv.k_format) == args.q.dtype &&
         args.sinks == nullptr && gpu::rows_aligned(args.q) && gpu::rows_aligned(args.out) &&
         gpu::multiple_of_access(kv.base) && kv.block_stride % gpu::kAccessBytes == 0;
}

void attention_cuda_latents(OpContext& context, const AttentionArgs& args) {
  if (args.q.dtype == DType::kF16) return run_latents<__half>(context, args);
  run_latents<__nv_bfloat16>(context, args);
}

}  // namespace headrace
