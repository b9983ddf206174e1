// top-p of bf16 logits, which have few values: the first pass counts the tokens of each, so that
// what all weigh, the cut's value and how many of its tokens are kept follow from 8,192 counts, and
// the second pass has only to weigh what is kept, by segments of the draw.
//
// Two tokens to an instruction: a value's bin is its bits without the sign, clamped to the window
// of magnitudes from 2^-22 to 2^10, beside its sign. What lies outside must not matter: smaller
// magnitudes weigh as much as 0 does where the best is 8 or more, larger negative values nothing.
// Where it does, the row takes the other ways, as rows with penalties or biases do, whose values
// are not bf16's.
#pragma once

#include "gpu/bf16_pairs.cuh"
#include "ops/sampling/device_sample_nucleus.cuh"

namespace headrace::block_row {

// Bins lie as the clamped bits do: positive values ascending, then negative ones descending.
// Positions are the same bins by descending value.
struct ValueBins {
  static constexpr uint32_t kSignBins = kValueBins / 2;
  static constexpr uint32_t kLowest = (127 - 22) << 7;  // bits of 2^-22, the bin of all below too
  static constexpr uint32_t kMost = kSignBins - 1;      // the bin of 1,020 and all above
  static constexpr float kExactFrom = 8.0f;

  __host__ __device__ static constexpr uint32_t pair(uint32_t half) { return half << 16 | half; }
  // Of the zeros of both signs, which are one value in two bins.
  __device__ static bool is_zero(uint32_t position) {
    return position == kSignBins - 1 || position == kSignBins;
  }
  // Byte offsets of two bins.
  __device__ __forceinline__ static uint32_t offsets(uint32_t words) {
    const uint32_t bins =
        clamp_pair(words & 0x7fff7fffu, pair(kLowest), pair(0x10000 - kLowest), pair(kMost));
    static_assert(kSignBins * 4 == 0x4000);
    return bins << 2 | (words >> 1 & 0x40004000u);
  }
  __device__ __forceinline__ static float value(uint32_t position) {
    const bool negative = position >= kSignBins;
    const uint32_t bin = negative ? position - kSignBins : kSignBins - 1 - position;
    const float magnitude = bin == 0 ? 0.0f : __uint_as_float((bin + kLowest) << 16);
    return negative ? -magnitude : magnitude;
  }
};

// Whether the counts are the whole truth of what is drawn from this row.
__device__ inline bool draws_by_values(const DeviceSampleRow& asked) {
  return is_nucleus(asked) && asked.min_p <= 0.0f && asked.logprobs < 0 && asked.penalises == 0 &&
         asked.bias_count == 0 && asked.mask < 0;
}

// All tokens by their values. Followed by a barrier.
template <class Row>
__device__ void count_values(Row& row) {
  auto& shared = row.shared;
  auto* counts = reinterpret_cast<uint4*>(shared.value_count);
  for (int i = row.thread(); i < kValueBins / 4; i += Row::kThreads) counts[i] = {0, 0, 0, 0};
  __syncthreads();
  auto* bins = reinterpret_cast<std::byte*>(shared.value_count);
  const auto count = [&](uint32_t offset) {
    atomicAdd(reinterpret_cast<uint32_t*>(bins + offset), 1u);
  };
  row.template for_each_words<PassOrder::kForwards>(
      [&](int32_t, int, const uint4& words) {
        const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t offsets = ValueBins::offsets(all[i]);
          count(offsets & 0xffffu);
          count(offsets >> 16);
        }
      },
      [&](int32_t access) {
        for (int32_t i = 0; i < Row::kWidth; ++i) {
          const int32_t token = access * Row::kWidth + i;
          if (token >= row.size) break;
          count(ValueBins::offsets(__float_as_uint(row.logit(token)) >> 16) & 0xffffu);
        }
      },
      [](int32_t) {});
  __syncthreads();
}

// Where the prefix of the order that reaches top_p ends.
struct ValueCut {
  SampleScale scale;
  uint32_t position;
  uint32_t count, needed;  // tokens of the last value, and of them kept
  SampleWeight weight;     // of all that is kept
};

// This thread's counts, by positions from the first of them on.
template <class Row>
__device__ void take_counts(Row& row, uint32_t (&counts)[kValueBins / Row::kThreads]) {
  constexpr int kEach = kValueBins / Row::kThreads;
  static_assert(ValueBins::kSignBins % kEach == 0 && kEach % 4 == 0);
  const auto first = static_cast<uint32_t>(row.thread() * kEach);
  const bool positive = first < ValueBins::kSignBins;
  const uint32_t lowest = positive ? ValueBins::kSignBins - kEach - first : first;
  uint32_t loaded[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(&row.shared.value_count[lowest + i]);
    loaded[i] = four.x;
    loaded[i + 1] = four.y;
    loaded[i + 2] = four.z;
    loaded[i + 3] = four.w;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) counts[i] = positive ? loaded[kEach - 1 - i] : loaded[i];
}

// Whether a value of the last bin is NaN; rows with values of -infinity alone look.
template <class Row>
__device__ __noinline__ bool has_nan(Row row) {
  if (row.thread() == 0) row.shared.any_nan = false;
  __syncthreads();
  bool nan = false;
  row.for_each([&](int32_t, float value) { nan = nan || value != value; });
  if (nan) row.shared.any_nan = true;
  __syncthreads();
  return row.shared.any_nan;
}

// False: the counts do not tell.
template <class Row>
__device__ bool find_value_cut(Row& row, const DeviceSampleRow& asked, ValueCut& cut) {
  auto& shared = row.shared;
  constexpr int kEach = kValueBins / Row::kThreads;
  uint32_t counts[kEach];
  take_counts(row, counts);
  // All before the next barrier: the other ways use the same memory.
  const uint32_t zeros = shared.value_count[0] + shared.value_count[ValueBins::kSignBins];
  const uint32_t beyond = shared.value_count[kValueBins - 1];
  const auto first = static_cast<uint32_t>(row.thread() * kEach);
  SampleKey best = kWorstKey;
#pragma unroll
  for (int i = kEach - 1; i >= 0; --i) {
    if (counts[i] > 0) best = first + i;
  }
  const auto best_position = static_cast<uint32_t>(row.best(best));
  cut.scale = SampleScale::of(asked, ValueBins::value(best_position));
  if (best_position == 0 || best_position == kValueBins - 1) return false;
  if (zeros > 0 && fabsf(cut.scale.largest) < ValueBins::kExactFrom) return false;
  if (beyond > 0 && cut.scale.weight(ValueBins::value(kValueBins - 1)) > 0) return false;
  if (beyond > 0 && has_nan(row)) return false;

  SampleWeight weights[kEach], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    weights[i] = 0;
    if (counts[i] > 0) weights[i] = cut.scale.weight(ValueBins::value(first + i));
    sum += weights[i] * counts[i];
  }
  SampleWeight before = row.scan(sum, total) - sum;
  const SampleGoal goal{1, top_p_goal(asked.top_p, total)};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const SampleWeight after = before + weights[i] * counts[i];
    if (before < goal.weight && after >= goal.weight) {
      const SampleWeight needed = ties_needed(goal, {0, before}, weights[i]);
      shared.found_bin = first + i;
      shared.found_count[0] = counts[i];
      shared.found_count[1] = static_cast<uint32_t>(needed);
      shared.found_weight = before + needed * weights[i];
    }
    before = after;
  }
  __syncthreads();
  cut.position = shared.found_bin;
  cut.count = shared.found_count[0];
  cut.needed = shared.found_count[1];
  cut.weight = shared.found_weight;
  __syncthreads();
  return !ValueBins::is_zero(cut.position);
}

// shared.segments: what the tokens above the value weigh; shared.segment_listed: how many have it.
template <class Row>
__device__ void weigh_above(Row& row, const SampleScale& scale, float edge) {
  auto& shared = row.shared;
  row.clear_segments();
  WeightSum kept;
  uint32_t ties = 0;  // two counts
  const uint32_t edges = ValueBins::pair(__float_as_uint(edge) >> 16);
  constexpr uint32_t kNothing = 0xff80ff80u;  // -infinity
  const auto weigh = [&](uint32_t word) {
    const uint32_t above = pair_greater(word, edges);
    const uint32_t left = (word & above) | (kNothing & ~above);
    kept.add(scale.exponential(__uint_as_float(left << 16)));
    kept.add(scale.exponential(__uint_as_float(left & 0xffff0000u)));
  };
  row.template for_each_words<PassOrder::kBackwards>(
      [&](int32_t, int, const uint4& words) {
        const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weigh(all[i]);
          ties += pair_equal(all[i], edges) & 0x00010001u;
        }
      },
      [&](int32_t access) {
        for (int32_t i = 0; i < Row::kWidth; ++i) {
          const int32_t token = access * Row::kWidth + i;
          if (token >= row.size) break;
          const float value = row.logit(token);
          if (value > edge) kept.add(scale.exponential(value));
          if (value == edge) ++ties;
        }
      },
      [&](int32_t segment) {
        row.keep_segment(segment, kept);
        const uint32_t count = __reduce_add_sync(0xffffffffu, (ties & 0xffffu) + (ties >> 16));
        if (sample_lane() == 0 && segment < row.segments()) shared.segment_listed[segment] = count;
        ties = 0;
      });
  __syncthreads();
}

// The cut of the row, with what is kept in shared.segments. False: not found this way.
template <class Row>
__device__ bool cut_by_values(Row& row, const DeviceSampleRow& asked, SampleScale& scale,
                              Cut& cut) {
  count_values(row);
  ValueCut found{.scale = {0.0f, 1.0f, 0.0f}, .position = 0, .count = 0, .needed = 0, .weight = 0};
  if (!find_value_cut(row, asked, found)) return false;
  scale = found.scale;
  const float edge = ValueBins::value(found.position);
  weigh_above(row, scale, edge);
  const int32_t last =
      found.needed < found.count ? token_of_tie(row, edge, found.needed - 1) : INT32_MAX;
  cut = {key_of(edge, last), found.weight};
  __syncthreads();
  keep_ties(row, found.needed, scale.weight(edge));
  return true;
}

}  // namespace headrace::block_row
