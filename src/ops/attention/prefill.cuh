// Attention of many rows, after FlashAttention-3 (Shah et al. 2024). A thread block is persistent
// and has three or four warpgroups: one warp of the first has the copy engine fetch queries, keys
// and values; the others hold 64 rows of a tile each and compute
//   S [64, keys] = Q K'      O [64, d] += P V      (wgmma, P from registers)
// Softmax hides in two ways: within a warpgroup, that of the next S runs while O += P V is in
// flight; between them, one warpgroup's products run while the others are at their softmax (named
// barriers hand the turn over).
//
// A tile is 64 rows a warpgroup: positions x the query heads of one key head, so that keys and
// values are read once for all heads. Its keys are taken from the last to the first: only the first
// steps meet the diagonal. Where a tile's keys are shared out (AttentionPlanShape::split_prompts),
// each warpgroup leaves its sums and softmax state in the workspace as its threads hold them, and
// that of the last split to end merges all, in order.
#pragma once

#include "gpu/mma.cuh"
#include "gpu/named_barrier.cuh"
#include "gpu/quad.cuh"
#include "gpu/ring_place.h"
#include "gpu/tma.cuh"
#include "gpu/wgmma.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/attention_tensor_map.cuh"
#include "ops/attention/page.cuh"

namespace headrace::gpu {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kConsumerRows = 64;

template <class Heads, bool kSplitTiles>
struct PrefillShape {
  static constexpr int kDim = Heads::kDim, kValueDim = Heads::kValueDim;
  static constexpr bool kAlibi = Heads::kAlibi;
  static constexpr bool kSplits = kSplitTiles;  // whether tiles may have several splits
  static constexpr int kTileRows = prefill_tile_rows(kDim);
  static constexpr int kConsumers = kTileRows / kConsumerRows;  // warpgroups that compute
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr int kKeys = kValueDim <= 128 ? 128 : 64;  // a step
  static constexpr int kPages = kKeys / kPageTokens;
  static constexpr int kStages = kConsumers;
  static constexpr int kQueryStages = kDim <= 128 ? 2 : 1;  // tiles
  static constexpr int kKeyStepBytes = kPages * Page<kDim>::kBytes;
  static constexpr int kValueStepBytes = kPages * Page<kValueDim>::kBytes;
  static constexpr int kQueryChunkBytes = kTileRows * Page<kDim>::kRowBytes;
  // Whether the warpgroups take turns at the tensor cores.
  static constexpr bool kTurns = kValueDim <= 128;
  static_assert(kConsumers <= kPrefillParts && kPrefillSteps % kKeys == 0);
};

struct PrefillItem {
  AttentionTileWork tile;
  int32_t head;  // < 0: no more
};

template <class Shape>
struct alignas(1024) PrefillShared {
  std::byte queries[Shape::kQueryStages][Page<Shape::kDim>::kChunks][Shape::kQueryChunkBytes];
  std::byte keys[Shape::kStages][Shape::kKeyStepBytes];
  std::byte values[Shape::kStages][Shape::kValueStepBytes];
  PrefillItem items[2];
  Barrier item_full[2], item_empty[2];
  Barrier queries_full[Shape::kQueryStages], queries_empty[Shape::kQueryStages];
  Barrier keys_full[Shape::kStages], keys_empty[Shape::kStages];
  Barrier values_full[Shape::kStages], values_empty[Shape::kStages];
  bool merges[Shape::kConsumers];

  __device__ void init_barriers() {
    constexpr uint32_t kWarps = Shape::kConsumers * kWarpgroupThreads / 32;
    for (int i = 0; i < 2; ++i) {
      item_full[i].init(1);
      item_empty[i].init(kWarps);
    }
    for (int i = 0; i < Shape::kQueryStages; ++i) {
      queries_full[i].init(1);
      queries_empty[i].init(kWarps);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      keys_full[i].init(1);
      keys_empty[i].init(kWarps);
      values_full[i].init(1);
      values_empty[i].init(kWarps);
    }
    fence_barrier_init();
  }
};

// Steps of kKeys keys of a tile, numbered from step_first on.
template <int kKeys>
__device__ int32_t steps_of(const AttentionTileWork& tile) {
  return (tile.key_last - tile.step_first + kKeys - 1) / kKeys;
}

// --- the warp that has everything fetched ---

template <class T, class Shape>
class PrefillProducer {
  using P = Page<Shape::kDim>;

 public:
  __device__ PrefillProducer(PrefillShared<Shape>& shared, const CUtensorMap& queries,
                             const CUtensorMap& keys, const CUtensorMap& values)
      : shared_(shared),
        queries_(queries),
        keys_(keys),
        values_(values),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run(const AttentionArguments<T>& args) {
    AttentionPlanHeader& header = args.header();
    const AttentionTileWork* tiles = args.prefill_tiles();
    const int32_t items = header.prefill_count * args.kv_heads;
    wait_for_earlier_kernels();
    for (int32_t item = static_cast<int32_t>(blockIdx.x); item < items;) {
      const AttentionTileWork tile = tiles[item / args.kv_heads];
      const int32_t head = item % args.kv_heads;
      int32_t next = 0;
      if (lane_ == 0) next = static_cast<int32_t>(gridDim.x + atomicAdd(&header.prefill_next, 1u));
      announce({tile, head});
      load_tile(args, tile, head);
      item = __shfl_sync(0xffffffffu, next, 0);
    }
    announce({.tile = {}, .head = -1});
    if (lane_ == 0) release_items(header.prefill_next, header.prefill_done);
  }

 private:
  __device__ void announce(const PrefillItem& item) {
    shared_.item_empty[item_.slot].wait(item_.parity ^ 1);
    if (lane_ == 0) {
      shared_.items[item_.slot] = item;
      shared_.item_full[item_.slot].arrive();
    }
    item_.advance();
  }

  __device__ void load_queries(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                               int32_t head) {
    const int slot = query_.slot;
    shared_.queries_empty[slot].wait(query_.parity ^ 1);
    query_.advance();
    if (lane_ != 0) return;
    const int positions = Shape::kTileRows / args.group;
    shared_.queries_full[slot].arrive_expecting(
        static_cast<uint32_t>(P::kChunks * positions * args.group * P::kRowBytes));
#pragma unroll
    for (int chunk = 0; chunk < P::kChunks; ++chunk) {
      copy_box(shared_.queries[slot][chunk], queries_, shared_.queries_full[slot], 0,
               head * args.group, tile.row_first, chunk);
    }
  }

  // Keys are needed one step ahead of values.
  __device__ void load_tile(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                            int32_t head) {
    load_queries(args, tile, head);
    const int32_t steps = steps_of<Shape::kKeys>(tile);
    RingPlace<Shape::kStages> key_place = place_, value_place = place_;
    int32_t key_block = block_of(tile, steps - 1);
    load_step(head, key_block, keys_, shared_.keys, shared_.keys_full, shared_.keys_empty,
              key_place);
    for (int32_t step = steps - 1; step >= 0; --step) {
      const int32_t value_block = key_block;
      if (step > 0) {
        key_block = block_of(tile, step - 1);
        load_step(head, key_block, keys_, shared_.keys, shared_.keys_full, shared_.keys_empty,
                  key_place);
      }
      load_step(head, value_block, values_, shared_.values, shared_.values_full,
                shared_.values_empty, value_place);
    }
    place_ = value_place;
  }

  // Block of page number `lane` of a step; -1 where the tile has no key.
  __device__ int32_t block_of(const AttentionTileWork& tile, int32_t step) const {
    const int32_t key = tile.step_first + step * Shape::kKeys + lane_ * kPageTokens;
    const bool used = lane_ < Shape::kPages && key >= tile.key_first && key < tile.key_last;
    return used ? tile.block_table[key / kPageTokens] : -1;
  }

  template <int kStepBytes>
  __device__ void load_step(int32_t head, int32_t block, const CUtensorMap& map,
                            std::byte (&stages)[Shape::kStages][kStepBytes],
                            Barrier (&full)[Shape::kStages], Barrier (&empty)[Shape::kStages],
                            RingPlace<Shape::kStages>& place) {
    constexpr int kPageBytes = kStepBytes / Shape::kPages;
    const int pages = __popc(__ballot_sync(0xffffffffu, block >= 0));
    empty[place.slot].wait(place.parity ^ 1);
    if (lane_ == 0) full[place.slot].arrive_expecting(static_cast<uint32_t>(pages * kPageBytes));
    __syncwarp();
    if (block >= 0) {
      copy_box(stages[place.slot] + lane_ * kPageBytes, map, full[place.slot], 0, 0, 0, 2 * head,
               block);
    }
    place.advance();
  }

  PrefillShared<Shape>& shared_;
  const CUtensorMap& queries_;
  const CUtensorMap& keys_;
  const CUtensorMap& values_;
  const int lane_;
  RingPlace<2> item_;
  RingPlace<Shape::kQueryStages> query_;
  RingPlace<Shape::kStages> place_;
};

// --- a warpgroup that computes ---

// Named barriers; 0 is __syncthreads().
inline constexpr int kTurnBarrier = 1;      // + consumer: its turn at the tensor cores
inline constexpr int kConsumerBarrier = 4;  // + consumer: its own threads

// Softmax state of this thread's two rows.
struct RowPair {
  float largest[2];  // of what scores hold
  float total[2];    // of this thread's keys
  int32_t last_key[2];
  int32_t first_key[2];
  float slope[2];  // with ALiBi: of scores in base 2
};

template <class T, class Shape>
class PrefillConsumer {
  using P = Page<Shape::kDim>;
  using V = Page<Shape::kValueDim>;
  using Arguments = ArgumentsOf<T, Shape>;
  static constexpr int kDim = Shape::kDim, kValueDim = Shape::kValueDim, kKeys = Shape::kKeys;
  using Scores = float[kKeys / 2];
  using Weights = uint32_t[kKeys / 4];
  using Sums = float[kValueDim / 2];

 public:
  __device__ PrefillConsumer(PrefillShared<Shape>& shared, int consumer)
      : shared_(shared),
        consumer_(consumer),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroupThreads),
        row_(consumer * kConsumerRows + thread_ / 32 * 16 + thread_ % 32 / 4) {}

  __device__ __forceinline__ void run(const Arguments& args) {
    if (Shape::kTurns && consumer_ == Shape::kConsumers - 1) pass_turn();
    RingPlace<2> place;
    while (true) {
      shared_.item_full[place.slot].wait(place.parity);
      const PrefillItem item = shared_.items[place.slot];
      release(shared_.item_empty[place.slot]);
      place.advance();
      if (item.head < 0) break;
      attend(args, item.tile, item.head);
    }
    if (Shape::kTurns && consumer_ == 0) take_turn();  // the last one that was passed on
  }

 private:
  __device__ __forceinline__ void take_turn() {
    if constexpr (Shape::kTurns) named_sync(kTurnBarrier + consumer_, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (Shape::kTurns) {
      const int next = consumer_ == Shape::kConsumers - 1 ? 0 : consumer_ + 1;
      named_arrive(kTurnBarrier + next, 2 * kWarpgroupThreads);
    }
  }
  // This warp reads no more of what the barrier guards.
  __device__ __forceinline__ void release(Barrier& empty) {
    __syncwarp();
    if (thread_ % 32 == 0) empty.arrive();
  }

  __device__ __forceinline__ void attend(const Arguments& args, const AttentionTileWork& tile,
                                         int32_t head) {
    RowPair rows = rows_of_tile(args, tile, head);
    const int32_t steps = steps_of<kKeys>(tile);
    Scores scores;
    Weights weights;
    Sums sums;
    float keep[2];

    shared_.queries_full[query_.slot].wait(query_.parity);
    shared_.keys_full[place_.slot].wait(place_.parity);
    take_turn();
    multiply_keys(scores, place_.slot);
    pass_turn();
    products_wait<0>();
    pin(scores);
    release(shared_.keys_empty[place_.slot]);
    mask(args, tile, steps - 1, rows, scores);
    weigh(args, rows, scores, keep);
    pack(scores, weights);

    for (int32_t step = steps - 2; step >= 0; --step) {
      const RingPlace<Shape::kStages> before = place_;
      place_.advance();
      shared_.keys_full[place_.slot].wait(place_.parity);
      take_turn();
      multiply_keys(scores, place_.slot);
      shared_.values_full[before.slot].wait(before.parity);
      if (step == steps - 2 || (step == 0 && kKeys < kPrefillSteps)) {
        clear_values(tile, step + 1, before.slot);
      }
      multiply_values(weights, before.slot, sums, step < steps - 2);
      pass_turn();
      products_wait<1>();
      pin(scores);
      release(shared_.keys_empty[place_.slot]);
      mask(args, tile, step, rows, scores);
      weigh(args, rows, scores, keep);
      products_wait<0>();
      pin(sums);
      release(shared_.values_empty[before.slot]);
      rescale(sums, keep);
      pack(scores, weights);
    }
    release(shared_.queries_empty[query_.slot]);
    query_.advance();
    shared_.values_full[place_.slot].wait(place_.parity);
    clear_values(tile, 0, place_.slot);
    multiply_values(weights, place_.slot, sums, steps > 1);
    products_wait<0>();
    pin(sums);
    release(shared_.values_empty[place_.slot]);
    place_.advance();
    if constexpr (Shape::kSplits) {
      if (tile.split_count > 1 && !merge(args, tile, head, rows, sums)) return;
    }
    write(args, tile, head, rows, sums);
  }

  __device__ __forceinline__ RowPair rows_of_tile(const Arguments& args,
                                                  const AttentionTileWork& tile,
                                                  int32_t head) const {
    RowPair rows;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.largest[j] = -INFINITY;
      rows.total[j] = 0.0f;
      rows.last_key[j] = tile.position + (row_ + 8 * j) / args.group;
      rows.first_key[j] = args.first_key(rows.last_key[j]);
      if constexpr (Shape::kAlibi) {
        rows.slope[j] = args.slopes[head * args.group + (row_ + 8 * j) % args.group] * kLog2e;
      }
    }
    return rows;
  }

  // scores = Q K', in flight when this returns.
  __device__ __forceinline__ void multiply_keys(Scores& scores, int slot) {
    constexpr auto kQueryLayout = OperandLayout::of(P::kRowBytes, 8 * P::kRowBytes, 16);
    constexpr auto kKeyLayout = OperandLayout::of(P::kRowBytes, P::kGroupBytes, 16);
    const uint32_t queries = shared_address(shared_.queries[query_.slot]) +
                             static_cast<uint32_t>(consumer_ * kConsumerRows * P::kRowBytes);
    const uint32_t keys = shared_address(shared_.keys[slot]);
    products_fence();
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      const int chunk = d / P::kChunk, within = d % P::kChunk * 2;
      Product<T, kKeys>::shared(
          scores,
          kQueryLayout.at(queries +
                          static_cast<uint32_t>(chunk * Shape::kQueryChunkBytes + within)),
          kKeyLayout.at(keys + static_cast<uint32_t>(chunk * P::kChunkBytes + within)), d > 0);
    }
    products_commit();
  }

  // sums (+)= P V, in flight when this returns.
  __device__ __forceinline__ void multiply_values(Weights& weights, int slot, Sums& sums, int add) {
    constexpr auto kValueLayout = OperandLayout::of(V::kRowBytes, V::kGroupBytes, V::kChunkBytes);
    const uint32_t values = shared_address(shared_.values[slot]);
    pin(weights);
    pin(sums);
    products_fence();
#pragma unroll
    for (int page = 0; page < Shape::kPages; ++page) {
      Product<T, kValueDim>::registers(
          sums, weights + page * 4,
          kValueLayout.at(values + static_cast<uint32_t>(page * V::kBytes)), page > 0 ? 1 : add);
    }
    products_commit();
  }

  // Of a step's values, those that are no keys of the tile were not loaded or never written, and
  // may be NaN, which a weight of 0 would not hide. Only a tile's last step has any, and its first
  // kPrefillSteps keys: a window's first key may lie behind the first step.
  __device__ void clear_values(const AttentionTileWork& tile, int32_t step, int slot) {
    const int32_t first = tile.step_first + step * kKeys;
    const int32_t before = max(tile.key_first - first, 0), behind = tile.key_last - first;
    if (before == 0 && behind >= kKeys) return;
    constexpr int kUnits = kValueDim / 8;  // of 16 bytes, a token
    std::byte* values = shared_.values[slot];
    for (int unit = thread_; unit < kKeys * kUnits; unit += kWarpgroupThreads) {
      const int token = unit / kUnits, chunk = unit % kUnits / (V::kChunk / 8);
      if (token >= before && token < behind) continue;
      const int offset = token / 8 * V::kGroupBytes + chunk * V::kChunkBytes +
                         token % 8 * V::kRowBytes + unit % (V::kChunk / 8) * 16;
      *reinterpret_cast<uint4*>(values + offset) = make_uint4(0, 0, 0, 0);
    }
    fence_async_proxy();
    named_sync(kConsumerBarrier + consumer_, kWarpgroupThreads);
  }

  // What scores behind mask() are multiplied by to be in base 2.
  __device__ __forceinline__ static float score_factor(const AttentionArguments<T>& args) {
    return Shape::kAlibi || args.scores.cap > 0 ? 1.0f : args.scores.factor;
  }

  // ALiBi: products become scores in base 2, less what the distances of their keys cost. `mine`:
  // the first of this thread's keys. Distances are from a row's own position, so that scores of
  // long texts keep their bits.
  __device__ __forceinline__ static void lean(const AttentionArguments<T>& args,
                                              const RowPair& rows, int32_t mine, Scores& scores) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float first = rows.slope[j] * static_cast<float>(mine - rows.last_key[j]);
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 != j) continue;
        const auto behind = static_cast<float>(i / 4 * 8 + i % 2);  // the first key
        scores[i] = fmaf(scores[i], args.scores.factor, fmaf(rows.slope[j], behind, first));
      }
    }
  }

  // Caps the scores; those of keys that a row does not see become -inf. The later of the thread's
  // two rows sees no earlier keys than the other.
  __device__ __forceinline__ void mask(const AttentionArguments<T>& args,
                                       const AttentionTileWork& tile, int32_t step,
                                       const RowPair& rows, Scores& scores) const {
    if (!Shape::kAlibi && args.scores.cap > 0) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = args.scores.capped(scores[i]);
    }
    const int32_t first = tile.step_first + step * kKeys;
    if constexpr (Shape::kAlibi) lean(args, rows, first + thread_ % 4 * 2, scores);
    const bool masked = first + kKeys > tile.position + 1 || first < rows.first_key[1];
    if (!masked) return;
    const int32_t mine = first + thread_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int32_t key = mine + i / 4 * 8 + i % 2;
      const int j = i / 2 % 2;
      if (key > rows.last_key[j] || key < rows.first_key[j]) scores[i] = -INFINITY;
    }
  }

  // Scores become weights relative to the largest so far; `keep` is what earlier sums are still
  // worth. It is exactly 1 where the largest stays: a step whose keys are all masked for a row,
  // of which another batch's tile has more or fewer, changes no bit of the row.
  __device__ __forceinline__ void weigh(const AttentionArguments<T>& args, RowPair& rows,
                                        Scores& scores, float (&keep)[2]) const {
    const float factor = score_factor(args);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float largest = rows.largest[j];
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == j) largest = fmaxf(largest, scores[i]);
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float origin = softmax_origin(largest) * factor;
      keep[j] = exp2_fast((rows.largest[j] - softmax_origin(largest)) * factor);
      rows.largest[j] = largest;
      float total = 0.0f;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == j) {
          scores[i] = exp2_fast(scores[i] * factor - origin);
          total += scores[i];
        }
      }
      rows.total[j] = rows.total[j] * keep[j] + total;
    }
  }

  __device__ __forceinline__ void rescale(Sums& sums, const float (&keep)[2]) const {
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) sums[i] *= keep[i / 2 % 2];
  }

  // Sums of 16 keys to an A operand: the layouts agree.
  __device__ __forceinline__ void pack(const Scores& scores, Weights& weights) const {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      weights[i] = packed<T>(scores[2 * i], scores[2 * i + 1]);
    }
  }

  // Where this thread's part of a split is: four floats, and as many every kPartialStride.
  static constexpr int kPartialStride = 4 * kWarpgroupThreads;
  static constexpr int64_t kPartialFloats = kConsumerRows * prefill_partial_floats(kValueDim);
  static_assert(kPartialFloats == (kValueDim / 8 + 1) * kPartialStride);
  __device__ __forceinline__ float* partial(const AttentionArguments<T>& args,
                                            const AttentionTileWork& tile, int32_t split,
                                            int32_t head) const {
    const int64_t number = int64_t{tile.partial_first + split} * args.kv_heads + head;
    return args.prefill_partials + (number * Shape::kConsumers + consumer_) * kPartialFloats +
           4 * thread_;
  }

  // Leaves this split's state in the workspace. True in the last of the rows' splits: rows and sums
  // are then those of all of them.
  __device__ __forceinline__ bool merge(const AttentionArguments<T>& args,
                                        const AttentionTileWork& tile, int32_t head, RowPair& rows,
                                        Sums& sums) {
    float* to = partial(args, tile, tile.split, head);
#pragma unroll
    for (int i = 0; i < kValueDim / 8; ++i) {
      __stcg(reinterpret_cast<float4*>(to + i * kPartialStride),
             float4{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]});
    }
    __stcg(reinterpret_cast<float4*>(to + kValueDim / 8 * kPartialStride),
           float4{rows.largest[0], rows.largest[1], rows.total[0], rows.total[1]});
    if (!last_split(args, tile, head)) return false;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.largest[j] = -INFINITY;
      rows.total[j] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) sums[i] = 0.0f;
#pragma unroll 1
    for (int split = 0; split < tile.split_count; ++split) {
      add_split(args, partial(args, tile, split, head), rows, sums);
    }
    return true;
  }

  // Whether this warpgroup is the last to finish a split of its rows; then what the others left is
  // visible to it. The counter wraps to 0 at the last: ready for the next layer.
  __device__ __forceinline__ bool last_split(const AttentionArguments<T>& args,
                                             const AttentionTileWork& tile, int32_t head) {
    __threadfence();
    named_sync(kConsumerBarrier + consumer_, kWarpgroupThreads);
    if (thread_ == 0) {
      auto* arrived = reinterpret_cast<uint32_t*>(args.plan + args.header().prefill_arrived_first);
      const auto last = static_cast<uint32_t>(tile.split_count - 1);
      const int32_t counter = (tile.merge * args.kv_heads + head) * kPrefillParts + consumer_;
      shared_.merges[consumer_] = atomicInc(&arrived[counter], last) == last;
    }
    named_sync(kConsumerBarrier + consumer_, kWarpgroupThreads);
    __threadfence();
    return shared_.merges[consumer_];
  }

  __device__ __forceinline__ void add_split(const AttentionArguments<T>& args, const float* from,
                                            RowPair& rows, Sums& sums) const {
    const float factor = score_factor(args);
    const float4 state =
        __ldcg(reinterpret_cast<const float4*>(from + kValueDim / 8 * kPartialStride));
    const float largest[2] = {state.x, state.y}, total[2] = {state.z, state.w};
    float keep[2], take[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float grown = fmaxf(rows.largest[j], largest[j]);
      const float origin = softmax_origin(grown) * factor;
      keep[j] = exp2_fast(rows.largest[j] * factor - origin);
      take[j] = exp2_fast(largest[j] * factor - origin);
      rows.largest[j] = grown;
      rows.total[j] = rows.total[j] * keep[j] + total[j] * take[j];
    }
#pragma unroll
    for (int i = 0; i < kValueDim / 8; ++i) {
      const float4 more = __ldcg(reinterpret_cast<const float4*>(from + i * kPartialStride));
      sums[4 * i] = sums[4 * i] * keep[0] + more.x * take[0];
      sums[4 * i + 1] = sums[4 * i + 1] * keep[0] + more.y * take[0];
      sums[4 * i + 2] = sums[4 * i + 2] * keep[1] + more.z * take[1];
      sums[4 * i + 3] = sums[4 * i + 3] * keep[1] + more.w * take[1];
    }
  }

  __device__ __forceinline__ void write(const AttentionArguments<T>& args,
                                        const AttentionTileWork& tile, int32_t head, RowPair& rows,
                                        const Sums& sums) const {
    const float factor = score_factor(args);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float total = rows.total[j];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int row = row_ + 8 * j;
      const int32_t query_head = head * args.group + row % args.group;
      float value = 1.0f;
      if (args.sinks != nullptr) {
        // Against the largest of both, so that neither overflows.
        const float sink = args.sinks[query_head] * kLog2e, seen = rows.largest[j] * factor;
        const float most = fmaxf(sink, seen);
        value = exp2_fast(seen - most);
        total = total * value + exp2_fast(sink - most);
      }
      value /= total;
      T* out = args.out.row(tile.row_first + row / args.group) +
               static_cast<int64_t>(query_head) * kValueDim;
      write_row(out, row < tile.row_count * args.group, value, j, sums);
    }
  }

  // Row j of this thread's two; four threads hold it in turns of 2 components. They exchange, so
  // that each has 8 in a row.
  __device__ __forceinline__ void write_row(T* out, bool valid, float value, int j,
                                            const Sums& sums) const {
    constexpr int kGroups = kValueDim / 8;
    const int quarter = thread_ % 4;
    const auto pair = [&](int i) {
      return packed<T>(sums[i * 4 + j * 2] * value, sums[i * 4 + j * 2 + 1] * value);
    };
#pragma unroll
    for (int i = 0; i + 4 <= kGroups; i += 4) {
      uint32_t pairs[4] = {pair(i), pair(i + 1), pair(i + 2), pair(i + 3)};
      transpose_quad(pairs, quarter);
      if (valid) {
        *reinterpret_cast<uint4*>(out + (i + quarter) * 8) =
            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
#pragma unroll
    for (int i = kGroups / 4 * 4; i < kGroups; ++i) {
      if (valid) *reinterpret_cast<uint32_t*>(out + i * 8 + quarter * 2) = pair(i);
    }
  }

  PrefillShared<Shape>& shared_;
  const int consumer_, thread_, row_;
  RingPlace<Shape::kQueryStages> query_;
  RingPlace<Shape::kStages> place_;
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    attention_prefill(const __grid_constant__ CUtensorMap queries,
                      const __grid_constant__ CUtensorMap keys,
                      const __grid_constant__ CUtensorMap values, ArgumentsOf<T, Shape> args) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  auto& shared = *reinterpret_cast<PrefillShared<Shape>*>(dynamic);
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  if (warpgroup == 0) {
    registers_lower<24>();
    if (threadIdx.x < 32) PrefillProducer<T, Shape>(shared, queries, keys, values).run(args);
  } else {
    registers_raise<Shape::kConsumerRegisters>();
    PrefillConsumer<T, Shape>(shared, warpgroup - 1).run(args);
  }
}

template <class T, class Shape>
void launch_prefill(OpContext& context, const AttentionArgs& args,
                    const ArgumentsOf<T, Shape>& arguments) {
  constexpr auto kernel = attention_prefill<T, Shape>;
  constexpr int kBytes = sizeof(PrefillShared<Shape>);
  static_assert(kBytes <= 227 * 1024);
  constexpr int kDim = Shape::kDim, kValueDim = Shape::kValueDim;
  const std::byte* base = args.kv.base;
  check_launch(context.stream,
               launch_overlapped(
                   kernel,
                   {.blocks = static_cast<unsigned>(args.plan->shape.sm_count),
                    .threads = Shape::kThreads,
                    .shared_bytes = kBytes},
                   stream_of(context),
                   query_map(args.q, kDim, arguments.group, Shape::kTileRows / arguments.group,
                             Page<kDim>::kChunk),
                   page_map(args.kv, base, kDim, Page<kDim>::kChunk),
                   page_map(args.kv, base + args.kv.v_offset, kValueDim, Page<kValueDim>::kChunk),
                   arguments));
}

}  // namespace headrace::gpu
