// Attention over latents (DeepSeek-AI, 2024): one key of 576 components for all heads, whose first
// 512 are its value, so that what is read of the cache serves both products.
//
// A thread block has 64 rows (heads of one position, or of several where they are fewer) against
// the keys of its team's parts (latent_plan.h), 64 at a time, in one of two places in shared
// memory. Three warpgroups share the work, as in FlashMLA (DeepSeek-AI, 2025): one warp of the
// first has the copy engine fetch queries and pages;
//   left:   S [64, 64] = Q K', its softmax P, and O [64, 0 .. 255] += P V
//   right:  O [64, 256 .. 511] += P V, with the P that the left one leaves in shared memory as its
//           threads hold it: those of the right one hold the same rows.
// The tensor cores have the right one's product while the left one is at its softmax.
//
// Where a team is two blocks (128 heads), they are a cluster: each fetches half of the pages, to
// both.
//
// Parts of a tile leave sums, largest and total in the workspace; a kernel behind this one merges
// them, in order.
#include <algorithm>

#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/named_barrier.cuh"
#include "gpu/quad.cuh"
#include "gpu/ring_place.h"
#include "gpu/tma.cuh"
#include "gpu/wgmma.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/attention_tensor_map.cuh"
#include "ops/attention/latent_merge.cuh"
#include "ops/attention/latent_plan.h"
#include "ops/attention/page.cuh"

namespace headrace {
namespace {

using gpu::Barrier, gpu::named_arrive, gpu::named_sync;

constexpr int kKeyDim = kLatentKeyDim, kValueDim = kLatentValueDim;
constexpr int kRows = kLatentTileRows, kKeys = kLatentStepKeys;
constexpr int kWarpgroup = 128, kThreads = 3 * kWarpgroup;
constexpr int kPlaces = 2;
// Of a thread, of those that the launch gives to all: more would be waited for for ever.
constexpr int kProducerRegisters = 32, kLeftRegisters = 240, kRightRegisters = 232;
static_assert(kProducerRegisters + kLeftRegisters + kRightRegisters <=
              3 * (65536 / kThreads / 8 * 8));
using LatentPage = gpu::Page<kKeyDim>;
constexpr int kPages = kKeys / gpu::kPageTokens;
constexpr int kStepBytes = kPages * LatentPage::kBytes;
constexpr int kQueryChunkBytes = kRows * LatentPage::kRowBytes;
constexpr int kHalfColumns = kValueDim / 2;
constexpr int kHalfChunks = kHalfColumns / LatentPage::kChunk;
static_assert(LatentPage::kRowBytes == 128 && kRows == 64);

// Named barriers; 0 is __syncthreads().
constexpr int kWeightsFull = 1, kWeightsEmpty = 2, kOwn = 3;  // + warpgroup: its own threads

using Scores = float[kKeys / 2];
using Weights = uint32_t[kKeys / 4];
using Sums = float[kHalfColumns / 2];

struct alignas(1024) LatentShared {
  std::byte queries[LatentPage::kChunks][kQueryChunkBytes];
  std::byte keys[kPlaces][kStepBytes];
  uint4 weights[kKeys / 16][kWarpgroup];  // of each thread of the left warpgroup
  float2 keep[kWarpgroup];                // what its two rows' sums are multiplied by
  Barrier queries_full, queries_empty;
  Barrier keys_full[kPlaces], keys_empty[kPlaces];

  // `blocks` that give places back.
  __device__ void init_barriers(uint32_t blocks) {
    constexpr uint32_t kWarps = kWarpgroup / 32;
    queries_full.init(1);
    queries_empty.init(kWarps);
    for (int i = 0; i < kPlaces; ++i) {
      keys_full[i].init(1);
      keys_empty[i].init(blocks * 2 * kWarps);
    }
    gpu::fence_barrier_init();
  }
};

__device__ __forceinline__ int32_t steps_of(const AttentionTileWork& tile) {
  return (tile.key_last - tile.key_first + kKeys - 1) / kKeys;
}

// --- the warp that has everything fetched ---

template <class T, bool kPaired>
class LatentProducer {
 public:
  __device__ LatentProducer(const LatentArguments<T>& args, LatentShared& shared,
                            const CUtensorMap& queries, const CUtensorMap& keys)
      : args_(args),
        shared_(shared),
        queries_(queries),
        keys_(keys),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    const int32_t last = args_.part(1);
    for (int32_t i = args_.part(0); i < last; ++i) {
      const AttentionTileWork tile = args_.attention.prefill_tiles()[i];
      load_queries(tile);
      const int32_t steps = steps_of(tile);
      for (int32_t step = 0; step < steps; ++step) load_keys(tile, step);
    }
  }

 private:
  __device__ void load_queries(const AttentionTileWork& tile) {
    shared_.queries_empty.wait(query_.parity ^ 1);
    query_.advance();
    if (lane_ == 0) {
      shared_.queries_full.arrive_expecting(static_cast<uint32_t>(
          LatentPage::kChunks * args_.positions * args_.group_heads * LatentPage::kRowBytes));
    }
    __syncwarp();
    if (lane_ < LatentPage::kChunks) {
      gpu::copy_box(shared_.queries[lane_], queries_, shared_.queries_full, 0,
                    args_.group() * args_.group_heads, tile.row_first, lane_);
    }
  }

  __device__ void load_keys(const AttentionTileWork& tile, int32_t step) {
    const int32_t key = tile.key_first + step * kKeys + lane_ * gpu::kPageTokens;
    const bool used = lane_ < kPages && key < tile.key_last;
    const int32_t block = used ? tile.block_table[key / gpu::kPageTokens] : 0;
    const int pages = __popc(__ballot_sync(0xffffffffu, used));
    Barrier& full = shared_.keys_full[place_.slot];
    shared_.keys_empty[place_.slot].wait(place_.parity ^ 1);
    if (lane_ == 0) full.arrive_expecting(static_cast<uint32_t>(pages * LatentPage::kBytes));
    __syncwarp();
    std::byte* const to = shared_.keys[place_.slot] + lane_ * LatentPage::kBytes;
    if constexpr (kPaired) {
      if (used && lane_ % 2 == static_cast<int>(gpu::cluster_rank())) {
        gpu::copy_box_to_blocks(to, keys_, full, 0b11, 0, 0, 0, 0, block);
      }
    } else if (used) {
      gpu::copy_box(to, keys_, full, 0, 0, 0, 0, block);
    }
    place_.advance();
  }

  const LatentArguments<T>& args_;
  LatentShared& shared_;
  const CUtensorMap& queries_;
  const CUtensorMap& keys_;
  const int lane_;
  RingPlace<1> query_;
  RingPlace<kPlaces> place_;
};

// --- the warpgroups that compute ---

// What both have: half of the columns of the sums of two rows a thread.
template <class T, bool kPaired>
class LatentHalf {
 protected:
  __device__ LatentHalf(const LatentArguments<T>& args, LatentShared& shared, int half)
      : args_(args),
        shared_(shared),
        half_(half),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        row_(thread_ / 32 * 16 + thread_ % 32 / 4) {}

  __device__ __forceinline__ void release_queries() {
    __syncwarp();
    if (thread_ % 32 == 0) shared_.queries_empty.arrive();
  }
  // To whoever copies to it.
  __device__ __forceinline__ void release_keys(int slot) {
    Barrier& empty = shared_.keys_empty[slot];
    __syncwarp();
    if constexpr (kPaired) {
      if (thread_ % 32 < 2) gpu::arrive_in_block(empty, static_cast<uint32_t>(thread_ % 32));
    } else if (thread_ % 32 == 0) {
      empty.arrive();
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kHalfColumns / 2; ++i) sums_[i] = 0.0f;
  }

  // Most steps change no row's largest, and no sum then.
  __device__ __forceinline__ void rescale(float2 keep) {
    if (!__any_sync(0xffffffffu, keep.x != 1.0f || keep.y != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kHalfColumns / 2; ++i) sums_[i] *= i / 2 % 2 == 0 ? keep.x : keep.y;
  }

  // sums += P V, in flight when this returns.
  __device__ __forceinline__ void multiply_values(Weights& weights, int slot) {
    constexpr auto kLayout = gpu::OperandLayout::of(LatentPage::kRowBytes, LatentPage::kGroupBytes,
                                                    LatentPage::kChunkBytes);
    const uint32_t values = gpu::shared_address(shared_.keys[slot]) +
                            static_cast<uint32_t>(half_ * kHalfChunks * LatentPage::kChunkBytes);
    gpu::pin(weights);
    gpu::pin(sums_);
    gpu::products_fence();
#pragma unroll
    for (int page = 0; page < kPages; ++page) {
      gpu::Product<T, kHalfColumns>::registers(
          sums_, weights + page * 4,
          kLayout.at(values + static_cast<uint32_t>(page * LatentPage::kBytes)), 1);
    }
    gpu::products_commit();
  }

  // Zero takes the place of what lies behind a part's keys in this half of the columns: it may
  // never have been written, and a weight of 0 would not hide a NaN.
  __device__ __forceinline__ void clear_behind(const AttentionTileWork& tile, int slot) {
    const int first = (tile.key_last - tile.key_first - 1) % kKeys + 1;
    if (first == kKeys) return;
    constexpr int kUnits = kHalfChunks * 8;  // of 16 bytes, of a key
    for (int i = thread_; i < (kKeys - first) * kUnits; i += kWarpgroup) {
      const int key = first + i / kUnits, unit = i % kUnits;
      std::byte* const at = shared_.keys[slot] + key / 8 * LatentPage::kGroupBytes +
                            (half_ * kHalfChunks + unit / 8) * LatentPage::kChunkBytes +
                            key % 8 * LatentPage::kRowBytes + unit % 8 * 16;
      *reinterpret_cast<uint4*>(at) = uint4{0, 0, 0, 0};
    }
    gpu::fence_async_proxy();
    named_sync(kOwn + half_, kWarpgroup);
  }

  // `factors`: 1 / total of the thread's two rows.
  __device__ __forceinline__ void finish(const AttentionTileWork& tile, float2 factors) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_ + 8 * j;
      const int32_t position = row / args_.group_heads;
      const int32_t head = args_.group() * args_.group_heads + row % args_.group_heads;
      const bool is_row = position < tile.row_count && head < args_.attention.group;
      if (tile.split_count == 1) {
        T* const out = args_.attention.out.row(tile.row_first + position) + head * kValueDim +
                       half_ * kHalfColumns;
        write_row(out, is_row, j == 0 ? factors.x : factors.y, j);
      } else if (is_row) {
        leave_row(partial_of(tile, row) + half_ * kHalfColumns, j);
      }
      if (half_ == 0 && is_row && args_.rows != nullptr && tile.split == 0 && thread_ % 4 == 0) {
        args_.rows[(tile.row_first + position) * args_.attention.group + head] = {
            (tile.partial_first * args_.groups + args_.group()) * kRows + row, tile.split_count};
      }
    }
  }

  __device__ __forceinline__ float* partial_of(const AttentionTileWork& tile, int row) const {
    const int64_t number = int64_t{tile.partial_first + tile.split} * args_.groups + args_.group();
    return args_.partials + (number * kRows + row) * kLatentPartialFloats;
  }

  const LatentArguments<T>& args_;
  LatentShared& shared_;
  const int half_, thread_, row_;
  RingPlace<kPlaces> place_;
  Sums sums_;

 private:
  // Four threads hold a row in turns of 2 components. They exchange, so that each has 8 in a row.
  __device__ __forceinline__ void write_row(T* out, bool valid, float factor, int j) const {
    const int quarter = thread_ % 4;
    const auto pair = [&](int i) {
      return gpu::packed<T>(sums_[i * 4 + j * 2] * factor, sums_[i * 4 + j * 2 + 1] * factor);
    };
#pragma unroll
    for (int i = 0; i < kHalfColumns / 8; i += 4) {
      uint32_t pairs[4] = {pair(i), pair(i + 1), pair(i + 2), pair(i + 3)};
      gpu::transpose_quad(pairs, quarter);
      if (valid) {
        *reinterpret_cast<uint4*>(out + (i + quarter) * 8) =
            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }
  __device__ __forceinline__ void leave_row(float* to, int j) const {
#pragma unroll
    for (int i = 0; i < kHalfColumns / 8; ++i) {
      *reinterpret_cast<float2*>(to + i * 8 + thread_ % 4 * 2) =
          float2{sums_[i * 4 + j * 2], sums_[i * 4 + j * 2 + 1]};
    }
  }
};

// Softmax state of a thread's two rows.
struct RowPair {
  float largest[2];  // of what scores hold
  float total[2];    // of this thread's keys
  int32_t last_key[2], first_key[2];
};

template <class T, bool kPaired>
class LatentLeft : LatentHalf<T, kPaired> {
  using Half = LatentHalf<T, kPaired>;
  using Half::args_, Half::shared_, Half::thread_, Half::row_, Half::place_, Half::sums_;

 public:
  __device__ LatentLeft(const LatentArguments<T>& args, LatentShared& shared)
      : Half(args, shared, 0) {}

  __device__ __forceinline__ void run() {
    const int32_t last = args_.part(1);
    for (int32_t i = args_.part(0); i < last; ++i) attend(args_.attention.prefill_tiles()[i]);
    named_sync(kWeightsEmpty, 2 * kWarpgroup);  // the last one that was left
  }

 private:
  __device__ __forceinline__ void attend(const AttentionTileWork& tile) {
    RowPair rows = rows_of(tile);
    this->clear();
    Scores scores;
    Weights weights;
    const int32_t steps = steps_of(tile);
    int before = 0;
    shared_.queries_full.wait(query_.parity);
    query_.advance();
    for (int32_t step = 0; step < steps; ++step) {
      shared_.keys_full[place_.slot].wait(place_.parity);
      multiply_keys(scores, place_.slot);
      if (step > 0) {
        gpu::products_wait<1>();
        gpu::pin(sums_);
        this->release_keys(before);
      }
      gpu::products_wait<0>();
      gpu::pin(scores);
      if (step == steps - 1) this->release_queries();
      mask(tile, tile.key_first + step * kKeys, rows, scores);
      const float2 keep = weigh(rows, scores);
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        weights[i] = gpu::packed<T>(scores[2 * i], scores[2 * i + 1]);
      }
      hand_over(weights, keep);
      this->rescale(keep);
      if (step == steps - 1) this->clear_behind(tile, place_.slot);
      this->multiply_values(weights, place_.slot);
      before = place_.slot;
      place_.advance();
    }
    gpu::products_wait<0>();
    gpu::pin(sums_);
    this->release_keys(before);
    end(tile, rows);
  }

  __device__ __forceinline__ RowPair rows_of(const AttentionTileWork& tile) const {
    RowPair rows;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.largest[j] = -INFINITY;
      rows.total[j] = 0.0f;
      rows.last_key[j] = tile.position + (row_ + 8 * j) / args_.group_heads;
      rows.first_key[j] = args_.attention.first_key(rows.last_key[j]);
    }
    return rows;
  }

  // scores = Q K', in flight when this returns.
  __device__ __forceinline__ void multiply_keys(Scores& scores, int slot) const {
    constexpr auto kQueryLayout =
        gpu::OperandLayout::of(LatentPage::kRowBytes, 8 * LatentPage::kRowBytes, 16);
    constexpr auto kKeyLayout =
        gpu::OperandLayout::of(LatentPage::kRowBytes, LatentPage::kGroupBytes, 16);
    const uint32_t queries = gpu::shared_address(shared_.queries);
    const uint32_t keys = gpu::shared_address(shared_.keys[slot]);
    gpu::products_fence();
#pragma unroll
    for (int d = 0; d < kKeyDim; d += 16) {
      const int chunk = d / LatentPage::kChunk, within = d % LatentPage::kChunk * 2;
      gpu::Product<T, kKeys>::shared(
          scores,
          kQueryLayout.at(queries + static_cast<uint32_t>(chunk * kQueryChunkBytes + within)),
          kKeyLayout.at(keys + static_cast<uint32_t>(chunk * LatentPage::kChunkBytes + within)),
          d > 0);
    }
    gpu::products_commit();
  }

  // Caps the scores; those of keys that a row does not see become -inf.
  __device__ __forceinline__ void mask(const AttentionTileWork& tile, int32_t first,
                                       const RowPair& rows, Scores& scores) const {
    const gpu::AttentionArguments<T>& args = args_.attention;
    if (args.scores.cap > 0) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = args.scores.capped(scores[i]);
    }
    const bool masked = first + kKeys > tile.position + 1 ||
                        first < args.first_key(tile.position + tile.row_count - 1);
    if (!masked) return;
    const int32_t mine = first + thread_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int32_t key = mine + i / 4 * 8 + i % 2;
      const int j = i / 2 % 2;
      if (key > rows.last_key[j] || key < rows.first_key[j]) scores[i] = -INFINITY;
    }
  }

  // Scores become weights relative to the largest so far; what earlier sums are still worth. It is
  // exactly 1 where the largest stays: a step whose keys are all masked changes no bit of a row.
  __device__ __forceinline__ float2 weigh(RowPair& rows, Scores& scores) const {
    const float factor = this->factor();
    float keep[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float largest = rows.largest[j];
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == j) largest = fmaxf(largest, scores[i]);
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float origin = gpu::softmax_origin(largest) * factor;
      keep[j] = gpu::exp2_fast((rows.largest[j] - gpu::softmax_origin(largest)) * factor);
      rows.largest[j] = largest;
      float total = 0.0f;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == j) {
          scores[i] = gpu::exp2_fast(scores[i] * factor - origin);
          total += scores[i];
        }
      }
      rows.total[j] = rows.total[j] * keep[j] + total;
    }
    return {keep[0], keep[1]};
  }
  __device__ __forceinline__ float factor() const {
    return args_.attention.scores.cap > 0 ? 1.0f : args_.attention.scores.factor;
  }

  // To the right warpgroup, which has taken what was left before.
  __device__ __forceinline__ void hand_over(const Weights& weights, float2 keep) {
    named_sync(kWeightsEmpty, 2 * kWarpgroup);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      shared_.weights[i][thread_] =
          make_uint4(weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3]);
    }
    shared_.keep[thread_] = keep;
    named_arrive(kWeightsFull, 2 * kWarpgroup);
  }

  __device__ __forceinline__ void end(const AttentionTileWork& tile, RowPair& rows) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.total[j] += __shfl_xor_sync(0xffffffffu, rows.total[j], 1);
      rows.total[j] += __shfl_xor_sync(0xffffffffu, rows.total[j], 2);
    }
    const float2 factors{1.0f / rows.total[0], 1.0f / rows.total[1]};
    named_sync(kWeightsEmpty, 2 * kWarpgroup);
    shared_.keep[thread_] = factors;
    named_arrive(kWeightsFull, 2 * kWarpgroup);
    if (tile.split_count > 1 && thread_ % 4 == 0) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float* const to = this->partial_of(tile, row_ + 8 * j);
        to[kValueDim] = rows.largest[j] * factor();
        to[kValueDim + 1] = rows.total[j];
      }
    }
    this->finish(tile, factors);
  }

  RingPlace<1> query_;
};

template <class T, bool kPaired>
class LatentRight : LatentHalf<T, kPaired> {
  using Half = LatentHalf<T, kPaired>;
  using Half::args_, Half::shared_, Half::thread_, Half::place_, Half::sums_;

 public:
  __device__ LatentRight(const LatentArguments<T>& args, LatentShared& shared)
      : Half(args, shared, 1) {}

  __device__ __forceinline__ void run() {
    named_arrive(kWeightsEmpty, 2 * kWarpgroup);
    const int32_t last = args_.part(1);
    for (int32_t i = args_.part(0); i < last; ++i) attend(args_.attention.prefill_tiles()[i]);
  }

 private:
  __device__ __forceinline__ void attend(const AttentionTileWork& tile) {
    this->clear();
    Weights weights;
    const int32_t steps = steps_of(tile);
    for (int32_t step = 0; step < steps; ++step) {
      named_sync(kWeightsFull, 2 * kWarpgroup);
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        const uint4 four = shared_.weights[i][thread_];
        weights[4 * i] = four.x;
        weights[4 * i + 1] = four.y;
        weights[4 * i + 2] = four.z;
        weights[4 * i + 3] = four.w;
      }
      const float2 keep = shared_.keep[thread_];
      named_arrive(kWeightsEmpty, 2 * kWarpgroup);
      shared_.keys_full[place_.slot].wait(place_.parity);
      this->rescale(keep);
      if (step == steps - 1) this->clear_behind(tile, place_.slot);
      this->multiply_values(weights, place_.slot);
      gpu::products_wait<0>();
      gpu::pin(sums_);
      this->release_keys(place_.slot);
      place_.advance();
    }
    named_sync(kWeightsFull, 2 * kWarpgroup);
    const float2 factors = shared_.keep[thread_];
    named_arrive(kWeightsEmpty, 2 * kWarpgroup);
    this->finish(tile, factors);
  }
};

template <class T, bool kPaired>
__global__ void __launch_bounds__(kThreads, 1)
    attend_latents(const __grid_constant__ CUtensorMap queries,
                   const __grid_constant__ CUtensorMap keys,
                   const __grid_constant__ LatentArguments<T> args) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  auto& shared = *reinterpret_cast<LatentShared*>(dynamic);
  if (threadIdx.x == 0) shared.init_barriers(kPaired ? 2 : 1);
  if constexpr (kPaired) {
    gpu::cluster_sync();
  } else {
    __syncthreads();
  }
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (warpgroup == 0) {
    gpu::registers_lower<kProducerRegisters>();
    if (threadIdx.x < 32) LatentProducer<T, kPaired>(args, shared, queries, keys).run();
  } else if (warpgroup == 1) {
    gpu::registers_raise<kLeftRegisters>();
    LatentLeft<T, kPaired>(args, shared).run();
  } else {
    gpu::registers_raise<kRightRegisters>();
    LatentRight<T, kPaired>(args, shared).run();
  }
  // The other one may still copy to this block.
  if constexpr (kPaired) gpu::cluster_sync();
}

template <class T>
void run_latents(OpContext& context, const AttentionArgs& args) {
  constexpr int kBytes = sizeof(LatentShared);
  static_assert(kBytes <= 227 * 1024);
  const AttentionPlanShape& shape = args.plan->shape;
  const Workspace::Mark mark(context.workspace);
  const int64_t rows = args.q.rows(), heads = args.q.columns() / kKeyDim;
  LatentArguments<T> arguments{.attention = gpu::attention_arguments<T>(args, nullptr, nullptr),
                               .partials = nullptr,
                               .rows = nullptr,
                               .groups = latent_groups(shape),
                               .group_heads = latent_group_heads(shape),
                               .positions = kRows / latent_group_heads(shape)};
  if (!shape.batch_invariant) {
    std::byte* const memory = context.workspace.take(latent_partial_bytes(shape));
    arguments.partials = reinterpret_cast<float*>(memory);
    arguments.rows = reinterpret_cast<LatentShares*>(memory + latent_sums_bytes(shape));
  }
  const bool paired = arguments.groups == 2;
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(
          paired ? attend_latents<T, true> : attend_latents<T, false>,
          {.blocks = static_cast<unsigned>(latent_teams(shape) * arguments.groups),
           .threads = kThreads,
           .shared_bytes = kBytes,
           .cluster = paired ? 2 : 1},
          gpu::stream_of(context),
          gpu::query_map(args.q, kKeyDim, arguments.group_heads, arguments.positions,
                         LatentPage::kChunk),
          gpu::page_map(args.kv, args.kv.base, kKeyDim, LatentPage::kChunk), arguments));
  // Steps of few rows may be recorded: they then have padding, and tiles that are shared out at
  // another time.
  if (rows <= shape.sequences_max || args.plan->has_merge) {
    const auto count = static_cast<int32_t>(rows * heads);
    const int32_t each = (count + kMergeBlocksMax - 1) / kMergeBlocksMax;
    gpu::launch(context, merge_latents<T>, static_cast<unsigned>(std::min(count, kMergeBlocksMax)),
                kMergeThreads, arguments, count, each);
  }
}

}  // namespace

bool latent_attention_fits(const DeviceTraits& traits, const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         args.plan != nullptr && args.plan->shape.latents && kv.keys == KeyLayout::kRows &&
         kv.v_aliases_k && kv.kv_heads == 1 && kv.k_dim == kKeyDim && kv.v_dim == kValueDim &&
         (args.q.dtype == DType::kF16 || args.q.dtype == DType::kBF16) &&
         !has_scales(kv.k_format) && kv_element(kv.k_format) == args.q.dtype &&
         args.sinks == nullptr && args.slopes == nullptr && gpu::rows_aligned(args.q) &&
         gpu::rows_aligned(args.out) && gpu::multiple_of_access(kv.base) &&
         kv.block_stride % gpu::kAccessBytes == 0;
}

void attention_cuda_latents(OpContext& context, const AttentionArgs& args) {
  if (args.q.dtype == DType::kF16) return run_latents<__half>(context, args);
  run_latents<__nv_bfloat16>(context, args);
}

}  // namespace headrace
