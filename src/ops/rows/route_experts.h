// route_experts: which experts of a mixture each row takes (Shazeer et al., 2017), and the rows of
// each expert side by side, as products by experts want them.
//   scores     softmax over all experts, or a sigmoid or sqrt(softplus) of each
//   choice     the `used` experts of the best scores (of scores + bias, or of logits + bias, where
//              there is one: Wang et al., 2024), of equal ones the first; where experts are in
//              groups, among those of the `groups_used` groups whose two best add up to most; or
//              what the caller says (DeepSeek V4, whose first layers go by the token)
//   weights    the scores of those chosen, divided by their sum where they are `normalised`, times
//              `scale`, and by the expert's own scale, where there are such
// A shared expert is one more, behind the others, that every row takes.
// A row's choice and weights depend on its own logits alone. One with a NaN chooses some experts,
// and its weights are NaN. Rows of padding choose as others do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ops/op.h"

namespace headrace {

enum class RouterScores : uint8_t {
  kSoftmax,
  kSigmoid,
  // SparseMixer (Liu et al., 2024): the best expert, then the best of the others, each with its
  // share of the softmax over those that are no further from it than twice `tolerance` of the
  // larger of both. REQUIRES: used is 2, there are no groups and no bias
  kSparseMixer,
  kSqrtSoftplus,  // (DeepSeek V4)
};

enum class SharedExpert : uint8_t {
  kNone,
  kWhole,  // its weight is 1
  kGated,  // its weight is the sigmoid of the logit behind those of the others
};

struct RouterRule {
  int32_t experts = 0;  // E, without the shared one
  int32_t used = 0;     // k of them a row
  RouterScores scores = RouterScores::kSoftmax;
  bool normalised = false;
  bool biases_logits = false;  // a bias is added to logits, not to scores (Kolibri)
  float tolerance = 0.0f;      // of kSparseMixer
  float scale = 1.0f;
  int32_t groups = 1;  // divides E
  int32_t groups_used = 1;
  // Experts of groups that are left out count as 0 and may be chosen before those whose biased
  // scores are less (A.X-K2); otherwise they are behind all.
  bool others_are_zero = false;
  SharedExpert shared = SharedExpert::kNone;

  int32_t logits() const { return experts + (shared == SharedExpert::kGated ? 1 : 0); }
  int32_t networks() const { return experts + (shared == SharedExpert::kNone ? 0 : 1); }
  int32_t networks_of_row() const { return used + (shared == SharedExpert::kNone ? 0 : 1); }
};

// Rows [starts[e], starts[e + 1]) of these are expert e's, ascending.
struct ExpertRows {
  std::span<int32_t> starts;  // [networks + 1]
  std::span<int32_t> rows;    // [T networks_of_row]
  std::span<float> weights;   // [T networks_of_row]
  // [T networks_of_row], or empty: where row t stands in the list, its networks in the order of
  // their numbers, from t networks_of_row on. -1: another rank's (RouteExpertsArgs::own).
  std::span<int32_t> places = {};
};

// Neighbouring experts of a mixture, [first, last), without the shared one.
struct ExpertRange {
  int32_t first = 0;
  int32_t last = 0;
  int32_t count() const { return last - first; }
};

struct RouteExpertsArgs {
  RouterRule rule;
  ConstTensorView logits;  // [T, rule.logits()] f32
  const float* bias;       // [E] or null
  ExpertRows out;
  // Where others multiply for the rest: the places of these alone are told, and the shared one's;
  // those of the rest are -1. The lists are of all.
  std::optional<ExpertRange> own = {};
  const float* scales = nullptr;  // [E], of each expert's weights, or null
  // CPU. [T, used] the experts of each row, or null: the rule chooses.
  const int32_t* experts = nullptr;
};

// Takes route_experts_workspace_bytes(T, rule) of the context's workspace for the time of the call.
void route_experts(OpContext& context, const RouteExpertsArgs& args);
int64_t route_experts_workspace_bytes(int64_t rows, const RouterRule& rule);

OpCost op_cost(const RouteExpertsArgs& args);
const KernelSet<RouteExpertsArgs>& route_experts_kernels();
KernelTable<RouteExpertsArgs> route_experts_cpu_kernels();
KernelTable<RouteExpertsArgs> route_experts_cuda_kernels();

}  // namespace headrace
