// Routing by a warp a row, and lists by a thread an expert: what the kernels of route_experts and
// norm_route share.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/route_experts.h"

namespace headrace::gpu {

inline constexpr int32_t kRoutedExpertsMax = 1024;  // 8 KB of keys a row

struct RouteArguments {
  RouterRule rule;
  RowsOf<const float> logits;
  const float* bias;
  int32_t rows;
  int32_t networks_of_row;
  // [T used], of rows in their order
  int32_t* chosen;
  float* chosen_weights;
  // The lists.
  int32_t *starts, *listed, *places;
  float* weights;
  ExpertRange own;      // whose places are told
  const float* scales;  // [experts] of their weights, or null
};

// --- a row's choice, by a warp ---

// A score as a number that is greater where the score is; 0: taken, or not to be taken. NaN is the
// least score, both zeros are one.
__device__ __forceinline__ uint64_t key_of(double score) {
  if (isnan(score)) score = -static_cast<double>(INFINITY);
  const auto bits = static_cast<uint64_t>(__double_as_longlong(score + 0.0));
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}
__device__ __forceinline__ double score_of(uint64_t key) {
  return __longlong_as_double(
      static_cast<long long>(key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key));
}

struct Candidate {
  uint64_t key;
  uint32_t number;
};
constexpr uint32_t kAllLanes = 0xffffffffu;

// Of all lanes' the one of the greatest key; of equal ones the lowest number, which every lane has
// as its own candidate's.
__device__ __forceinline__ uint32_t best_of_warp(const Candidate& own) {
  const auto high = static_cast<uint32_t>(own.key >> 32), low = static_cast<uint32_t>(own.key);
  const bool leads = high == __reduce_max_sync(kAllLanes, high);
  const uint32_t lowest = __reduce_max_sync(kAllLanes, leads ? low : 0u);
  return __reduce_min_sync(kAllLanes, leads && low == lowest ? own.number : kAllLanes);
}

__device__ __forceinline__ double sum_of_warp(double value) {
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

__device__ __forceinline__ double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }

class RowRouter {
 public:
  // `keys` [experts], `groups` [rule.groups]: of this warp.
  __device__ RowRouter(const RouteArguments& args, int32_t row, uint64_t* keys, double* groups)
      : rule_(args.rule),
        logits_(args.logits.row(row)),
        bias_(args.bias),
        keys_(keys),
        groups_(groups),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads) {}

  // Best first, [used] each.
  __device__ void route(int32_t* experts, float* weights) {
    const bool has_nan = fill_keys();
    if (rule_.scores == RouterScores::kSparseMixer) return mix(experts, weights, has_nan);
    if (rule_.groups_used < rule_.groups) leave_out_groups();
    Candidate candidate = own_best();
    float largest = 0.0f;
    double sum = softmax() ? 0.0 : 1e-20;
    // A lane has the score of one of 32 choices at a time; they are added up in their order.
    for (int32_t first = 0; first < rule_.used; first += kWarpThreads) {
      const int32_t count = min(rule_.used - first, kWarpThreads);
      int32_t own = 0;
      for (int32_t i = 0; i < count; ++i) {
        const int32_t expert = take_best(candidate);
        if (first + i == 0) largest = logits_[expert];
        if (lane_ == i) own = expert;
      }
      const double own_score = score(own, largest);
      for (int32_t i = 0; i < count; ++i) sum += __shfl_sync(kAllLanes, own_score, i);
      if (lane_ < count) experts[first + lane_] = own;
    }
    if (!rule_.normalised) sum = sum_of_all(largest);
    __syncwarp();
    for (int32_t i = lane_; i < rule_.used; i += kWarpThreads) {
      const double weight = rule_.scale * score(experts[i], largest) / sum;
      weights[i] = has_nan ? nanf("") : static_cast<float>(weight);
    }
  }

  __device__ float shared_weight() const {
    if (rule_.shared != SharedExpert::kGated) return 1.0f;
    return static_cast<float>(sigmoid_of(logits_[rule_.experts]));
  }

 private:
  __device__ bool softmax() const { return rule_.scores == RouterScores::kSoftmax; }

  // What a choice is made by. True: there was a NaN.
  __device__ bool fill_keys() {
    bool nan = false;
    // Else they have the logits' order.
    const bool by_scores =
        softmax() && !rule_.biases_logits && (bias_ != nullptr || rule_.groups_used < rule_.groups);
    const float largest = by_scores ? largest_logit() : 0.0f;
    const double total = by_scores ? sum_of_all(largest) : 1.0;
    for (int32_t e = lane_; e < rule_.experts; e += kWarpThreads) {
      double score = logits_[e];
      if (rule_.scores == RouterScores::kSigmoid && !rule_.biases_logits) score = sigmoid_of(score);
      if (by_scores) score = exp(score - largest) / total;
      if (bias_ != nullptr) score += bias_[e];
      nan |= isnan(score);
      keys_[e] = key_of(score);
    }
    __syncwarp();
    return __any_sync(kAllLanes, nan) != 0;
  }

  // Each expert in its turn, with its share of those that are not taken before it and not far from
  // it. A lane knows what is taken of its own experts.
  __device__ void mix(int32_t* experts, float* weights, bool has_nan) {
    const double far = 2.0 * static_cast<double>(rule_.tolerance);
    Candidate candidate = own_best();
    for (int32_t i = 0; i < rule_.used; ++i) {
      const int32_t best = take_best(candidate);
      const double largest = logits_[best];
      double sum = 0;
      for (int32_t e = lane_; e < rule_.experts; e += kWarpThreads) {
        if (keys_[e] == 0 && e != best) continue;
        const double logit = logits_[e], factor = fmax(fabs(logit), largest);
        if (!((largest - logit) / factor > far)) sum += exp(logit - largest);
      }
      sum = sum_of_warp(sum);
      if (lane_ == 0) {
        experts[i] = best;
        weights[i] = has_nan ? nanf("") : static_cast<float>(rule_.scale / sum);
      }
    }
  }

  __device__ void leave_out_groups() {
    const int32_t size = rule_.experts / rule_.groups;
    for (int32_t g = lane_; g < rule_.groups; g += kWarpThreads) {
      double first = -static_cast<double>(INFINITY), second = first;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) {
        const double score = score_of(keys_[e]);
        if (score > first) {
          second = first;
          first = score;
        } else if (score > second) {
          second = score;
        }
      }
      groups_[g] = isinf(second) ? first : first + second;
    }
    __syncwarp();
    for (int32_t g = lane_; g < rule_.groups; g += kWarpThreads) {
      int32_t better = 0;
      for (int32_t other = 0; other < rule_.groups; ++other) {
        const bool ahead =
            groups_[other] > groups_[g] || (other < g && groups_[other] == groups_[g]);
        better += ahead ? 1 : 0;
      }
      if (better < rule_.groups_used) continue;
      const uint64_t key = rule_.others_are_zero ? key_of(0.0) : 0;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) keys_[e] = key;
    }
    __syncwarp();
  }

  // Of this lane's experts, every 32nd.
  __device__ Candidate own_best() const {
    Candidate best{0, kAllLanes};
    for (int32_t e = lane_; e < rule_.experts; e += kWarpThreads) {
      if (keys_[e] > best.key) best = {keys_[e], static_cast<uint32_t>(e)};
    }
    return best;
  }

  __device__ int32_t take_best(Candidate& own) {
    const uint32_t best = best_of_warp(own);
    if (best == own.number) {
      keys_[best] = 0;
      own = own_best();
    }
    return static_cast<int32_t>(best);
  }

  __device__ float largest_logit() const {
    float largest = -INFINITY;
    for (int32_t e = lane_; e < rule_.experts; e += kWarpThreads) {
      largest = fmaxf(largest, logits_[e]);
    }
#pragma unroll
    for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    return largest;
  }

  // Of a softmax, over the sum of all scores.
  __device__ double score(int32_t expert, float largest) const {
    if (!softmax()) return sigmoid_of(logits_[expert]);
    return exp(static_cast<double>(logits_[expert]) - largest);
  }
  __device__ double sum_of_all(float largest) const {
    if (!softmax()) return 1.0;
    double sum = 0;
    for (int32_t e = lane_; e < rule_.experts; e += kWarpThreads) sum += score(e, largest);
    return sum_of_warp(sum);
  }

  const RouterRule& rule_;
  const float* const logits_;
  const float* const bias_;
  uint64_t* const keys_;
  double* const groups_;
  const int lane_;
};

// The place of the shared expert of a row.
__device__ inline void take_shared(const RouteArguments& args, int32_t row, float weight) {
  const int32_t at = args.rows * args.rule.used + row;
  args.listed[at] = row;
  args.weights[at] = weight;
  if (args.places == nullptr) return;
  args.places[row * args.networks_of_row + args.rule.used] = at;
}

__device__ inline void route_row(const RouteArguments& args, int32_t row, uint64_t* scratch) {
  RowRouter router(args, row, scratch, reinterpret_cast<double*>(scratch + args.rule.experts));
  const int64_t first = int64_t{row} * args.rule.used;
  router.route(args.chosen + first, args.chosen_weights + first);
  if (args.rule.shared == SharedExpert::kNone) return;
  if (threadIdx.x % kWarpThreads == 0) take_shared(args, row, router.shared_weight());
}

__device__ __forceinline__ uint64_t* scratch_of_warp(const RouterRule& rule, uint64_t* all,
                                                     int warp) {
  return all + warp * (rule.experts + rule.groups);
}

// --- the lists ---

// Choice `i`, which is expert `expert`'s, at `at` of the list.
__device__ __forceinline__ void list_choice(const RouteArguments& args, int32_t expert, int32_t i,
                                            int32_t at) {
  const int32_t used = args.rule.used, row = i / used;
  args.listed[at] = row;
  const float scale = args.scales == nullptr ? 1.0f : args.scales[expert];
  args.weights[at] = args.chosen_weights[i] * scale;
  if (args.places == nullptr) return;
  int32_t before = 0;
  for (int32_t j = row * used; j < (row + 1) * used; ++j) before += args.chosen[j] < expert ? 1 : 0;
  const bool own = expert >= args.own.first && expert < args.own.last;
  args.places[row * args.networks_of_row + before] = own ? at : -1;
}

// By any thread that has the first place of the last expert's.
__device__ __forceinline__ void end_lists(const RouteArguments& args) {
  const int32_t taken = args.rows * args.rule.used;
  args.starts[args.rule.experts] = taken;
  if (args.rule.shared != SharedExpert::kNone) {
    args.starts[args.rule.experts + 1] = taken + args.rows;
  }
}

// By a block: a warp a row, then a thread an expert. `scratch`: route_scratch_bytes() of shared
// memory.
__device__ inline void route_in_block(const RouteArguments& args, uint64_t* scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  if (warp < args.rows) route_row(args, warp, scratch_of_warp(args.rule, scratch, warp));
  __syncthreads();  // choices are seen by the block's threads
  const int32_t taken = args.rows * args.rule.used;
  for (auto expert = static_cast<int32_t>(threadIdx.x); expert < args.rule.experts;
       expert += static_cast<int32_t>(blockDim.x)) {
    int32_t place = 0;
    for (int32_t i = 0; i < taken; ++i) place += args.chosen[i] < expert ? 1 : 0;
    args.starts[expert] = place;
    for (int32_t i = 0; i < taken; ++i) {
      if (args.chosen[i] == expert) list_choice(args, expert, i, place++);
    }
  }
  if (threadIdx.x == 0) end_lists(args);
}

// Takes route_experts_workspace_bytes() of the context's workspace.
inline RouteArguments route_arguments(OpContext& context, const RouteExpertsArgs& args) {
  const int64_t taken = args.logits.rows() * args.rule.used;
  return {.rule = args.rule,
          .logits = rows_of<float>(args.logits),
          .bias = args.bias,
          .rows = static_cast<int32_t>(args.logits.rows()),
          .networks_of_row = args.rule.networks_of_row(),
          .chosen = context.workspace.take_array<int32_t>(taken),
          .chosen_weights = context.workspace.take_array<float>(taken),
          .starts = args.out.starts.data(),
          .listed = args.out.rows.data(),
          .places = args.out.places.empty() ? nullptr : args.out.places.data(),
          .weights = args.out.weights.data(),
          .own = args.own.value_or(ExpertRange{0, args.rule.experts}),
          .scales = args.scales};
}

// Of shared memory, for so many rows at a time.
inline int route_scratch_bytes(const RouterRule& rule, int rows) {
  return rows * (rule.experts + rule.groups) * static_cast<int>(sizeof(uint64_t));
}

}  // namespace headrace::gpu
