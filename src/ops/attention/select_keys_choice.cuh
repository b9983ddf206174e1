// The choice of select_keys on CUDA: of a row's scores the `top` largest, of equal ones the first,
// by a radix select. Scores become integers that order as they do; of these the `top`-th largest is
// found, a byte at a time, from counts of how often each value of the byte occurs. Then the places
// of those above it are written in order, and of its equals the first that are still missing.
#pragma once

#include "gpu/reduce.cuh"
#include "ops/attention/select_keys.h"
#include "ops/attention/step_rows.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace::gpu {

constexpr int kChoiceThreads = 1024, kChoiceWarps = kChoiceThreads / kWarpThreads;
constexpr int kChoiceEach = 4;  // scores of a thread at a time
constexpr int kDigits = 256;
// Lanes count in tables of their own, as scores of a row have few values of their first byte.
constexpr int kCountTables = 16;

struct ChoiceArguments {
  StepRows rows;
  int32_t row_first;    // blockIdx.x 0
  ChosenPlaces chosen;  // of all rows of the step
  const float* scores;  // [rows of this launch, stride]
  int64_t stride;
};

struct ChoiceShared {
  uint32_t counts[kDigits][kCountTables];
  uint32_t totals[kDigits];
  uint32_t warps[kChoiceWarps];
  uint32_t digit, above;  // of the byte that is being found, and how many are larger
};

// An integer that orders as the score does; a NaN has one, too. 0 and -0 are equal. As
// select_keys_cpu.cc has it.
__device__ __forceinline__ uint32_t ordered(float score) {
  const uint32_t bits = __float_as_uint(score == 0.0f ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Four scores from `first` on, a multiple of 4, and of those behind `seen` nothing:
// body(index, integer).
template <class Body>
__device__ __forceinline__ void for_four(const float* scores, int32_t first, int32_t seen,
                                         const Body& body) {
  if (first >= seen) return;
  const auto four = Vector<float, kChoiceEach>::load(scores + first);
#pragma unroll
  for (int i = 0; i < kChoiceEach; ++i) {
    if (first + i < seen) body(i, ordered(four.values[i]));
  }
}

// Counts the bytes at `shift` of all whose bits above it are those of `found`.
__device__ void count_digits(const float* scores, int32_t seen, uint32_t found, int shift,
                             ChoiceShared& shared) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  auto* const all = &shared.counts[0][0];
  for (int i = thread; i < kDigits * kCountTables; i += kChoiceThreads) all[i] = 0;
  __syncthreads();
  const uint32_t mask = shift == 24 ? 0u : ~0u << (shift + 8);
  const int table = thread % kCountTables;
  for (int32_t first = thread * kChoiceEach; first < seen; first += kChoiceThreads * kChoiceEach) {
    for_four(scores, first, seen, [&](int, uint32_t integer) {
      if (((integer ^ found) & mask) != 0) return;
      atomicAdd(&shared.counts[integer >> shift & (kDigits - 1)][table], 1u);
    });
  }
  __syncthreads();
  if (thread < kDigits) {
    uint32_t total = 0;
    for (int i = 0; i < kCountTables; ++i) total += shared.counts[thread][i];
    shared.totals[thread] = total;
  }
  __syncthreads();
}

// The digit in which the `missing`-th largest lies. By one warp: a lane has eight digits.
__device__ void find_digit(uint32_t missing, ChoiceShared& shared) {
  constexpr int kEach = kDigits / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t own = 0;
  for (int i = 0; i < kEach; ++i) own += shared.totals[lane * kEach + i];
  uint32_t from_here = own;  // of this lane's digits and all above
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const uint32_t more = __shfl_down_sync(0xffffffffu, from_here, distance);
    if (lane + distance < kWarpThreads) from_here += more;
  }
  uint32_t above = from_here - own;
  if (above >= missing || from_here < missing) return;
  for (int i = kEach - 1; i >= 0; --i) {
    const uint32_t here = shared.totals[lane * kEach + i];
    if (above + here >= missing) {
      shared.digit = static_cast<uint32_t>(lane * kEach + i);
      shared.above = above;
      return;
    }
    above += here;
  }
}

// The `top`-th largest integer, and how many of its equals are chosen.
struct Threshold {
  uint32_t integer;
  uint32_t equals;
};
__device__ Threshold find_threshold(const float* scores, int32_t seen, int32_t top,
                                    ChoiceShared& shared) {
  Threshold threshold{0, static_cast<uint32_t>(top)};
  for (int shift = 24; shift >= 0; shift -= 8) {
    count_digits(scores, seen, threshold.integer, shift, shared);
    if (threadIdx.x < kWarpThreads) find_digit(threshold.equals, shared);
    __syncthreads();
    threshold.integer |= shared.digit << shift;
    threshold.equals -= shared.above;
  }
  return threshold;
}

// The sum over the threads before this one, and over all: of two counts in one number, of 16 bits.
struct CountsBefore {
  uint32_t before, all;
};
__device__ __forceinline__ CountsBefore counts_before(uint32_t own, ChoiceShared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const auto sum_up_to_here = [lane](uint32_t value) {
    for (int distance = 1; distance < kWarpThreads; distance *= 2) {
      const uint32_t more = __shfl_up_sync(0xffffffffu, value, distance);
      if (lane >= distance) value += more;
    }
    return value;
  };
  const uint32_t in_warp = sum_up_to_here(own);
  __syncthreads();  // the sums of the call before are read
  if (lane == kWarpThreads - 1) shared.warps[warp] = in_warp;
  __syncthreads();
  static_assert(kChoiceWarps == kWarpThreads);
  const uint32_t warps = sum_up_to_here(shared.warps[lane]);
  const uint32_t before_warp = __shfl_sync(0xffffffffu, warps, max(warp - 1, 0));
  return {(warp == 0 ? 0 : before_warp) + in_warp - own,
          __shfl_sync(0xffffffffu, warps, kWarpThreads - 1)};
}

// The places in order.
__device__ void write_places(const float* scores, int32_t seen, Threshold threshold, int32_t top,
                             int32_t* places, ChoiceShared& shared) {
  constexpr uint32_t kEqual = 1u << 16;  // one of the upper count
  static_assert(kChoiceThreads * kChoiceEach < kEqual);
  uint32_t larger = 0, equal = 0;  // so far
  for (int32_t tile = 0; tile < seen; tile += kChoiceThreads * kChoiceEach) {
    if (larger + min(equal, threshold.equals) == static_cast<uint32_t>(top)) return;
    const int32_t first = tile + static_cast<int32_t>(threadIdx.x) * kChoiceEach;
    uint32_t counts[kChoiceEach] = {}, own = 0;
    for_four(scores, first, seen, [&](int i, uint32_t integer) {
      if (integer > threshold.integer) counts[i] = 1;
      if (integer == threshold.integer) counts[i] = kEqual;
      own += counts[i];
    });
    const CountsBefore sums = counts_before(own, shared);
    uint32_t larger_before = larger + sums.before % kEqual;
    uint32_t equal_before = equal + sums.before / kEqual;
#pragma unroll
    for (int i = 0; i < kChoiceEach; ++i) {
      const bool is_equal = counts[i] == kEqual;
      if (counts[i] == 1 || (is_equal && equal_before < threshold.equals)) {
        places[larger_before + min(equal_before, threshold.equals)] = first + i;
      }
      larger_before += counts[i] % kEqual;
      equal_before += counts[i] / kEqual;
    }
    larger += sums.all % kEqual;
    equal += sums.all / kEqual;
  }
}

// A thread block a row.
__global__ void __launch_bounds__(kChoiceThreads)
    choose_places(const __grid_constant__ ChoiceArguments args) {
  __shared__ ChoiceShared shared;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int32_t row = args.row_first + static_cast<int32_t>(blockIdx.x);
  const int32_t seen = args.rows.seen(row);
  const int32_t top = args.chosen.top;
  int32_t* const places = args.chosen.front + row * args.chosen.stride;
  if (seen <= top) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < seen; i += kChoiceThreads) places[i] = i;
    return;
  }
  const float* const scores = args.scores + blockIdx.x * args.stride;
  write_places(scores, seen, find_threshold(scores, seen, top, shared), top, places, shared);
}

}  // namespace headrace::gpu
