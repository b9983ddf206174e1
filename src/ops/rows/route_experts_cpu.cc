#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ops/rows/activation.h"
#include "ops/rows/route_experts.h"

namespace headrace {
namespace {

// The best of values that are offered in the order of their numbers: best first, of equal ones the
// first. It is full whatever the values are.
class BestOf {
 public:
  // Room for `count` numbers; their values are where `value_of` finds them.
  BestOf(int32_t* numbers, int32_t count) : numbers_(numbers), count_(count) {}

  template <class ValueOf>
  void offer(int32_t number, const ValueOf& value_of) {
    const double value = value_of(number);
    int32_t at = filled_;
    if (filled_ == count_) {
      if (!(value > value_of(numbers_[count_ - 1]))) return;
      at = count_ - 1;
    } else {
      ++filled_;
    }
    for (; at > 0 && value > value_of(numbers_[at - 1]); --at) numbers_[at] = numbers_[at - 1];
    numbers_[at] = number;
  }

 private:
  int32_t* const numbers_;
  const int32_t count_;
  int32_t filled_ = 0;
};

// The router's view of one row.
class RoutedRow {
 public:
  RoutedRow(const RouteExpertsArgs& args, int64_t row)
      : rule_(args.rule),
        logits_(f32_row(args.logits, row)),
        bias_(args.bias),
        given_(args.experts == nullptr ? nullptr : args.experts + row * args.rule.used) {
    if (!chooses_by_softmax()) return;
    largest_ = *std::max_element(logits_, logits_ + rule_.experts);
    total_ = sum_of_all(largest_);
  }

  // Numbers of the experts and their weights, [k] each.
  void route(int32_t* experts, float* weights) const {
    const bool mixes = rule_.scores == RouterScores::kSparseMixer;
    if (given_ != nullptr) {
      std::copy_n(given_, rule_.used, experts);
    } else if (mixes) {
      mix(experts, weights);
    } else {
      choose(experts);
    }
    if (std::any_of(logits_, logits_ + rule_.experts, [](float x) { return std::isnan(x); })) {
      std::fill_n(weights, rule_.used, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    if (mixes) return;
    double sum = rule_.scores == RouterScores::kSoftmax ? 0.0 : 1e-20;
    const float largest = logits_[experts[0]];
    for (int32_t i = 0; i < rule_.used; ++i) sum += score(experts[i], largest);
    if (!rule_.normalised) sum = sum_of_all(largest);
    for (int32_t i = 0; i < rule_.used; ++i) {
      weights[i] = static_cast<float>(rule_.scale * score(experts[i], largest) / sum);
    }
  }

  float shared_weight() const {
    if (rule_.shared != SharedExpert::kGated) return 1.0f;
    return static_cast<float>(activated(Activation::kSigmoid, logits_[rule_.experts]));
  }

 private:
  // Each of the two in its turn, without those before it.
  void mix(int32_t* experts, float* weights) const {
    for (int32_t i = 0; i < rule_.used; ++i) {
      const auto is_taken = [&](int32_t e) { return std::count(experts, experts + i, e) > 0; };
      int32_t best = -1;
      for (int32_t e = 0; e < rule_.experts; ++e) {
        if (!is_taken(e) && (best < 0 || logits_[e] > logits_[best])) best = e;
      }
      const double largest = logits_[best];
      double sum = 0;
      for (int32_t e = 0; e < rule_.experts; ++e) {
        const double logit = logits_[e], factor = std::max(std::abs(logit), largest);
        const bool far = (largest - logit) / factor > 2 * double{rule_.tolerance};
        if (!is_taken(e) && !far) sum += std::exp(logit - largest);
      }
      experts[i] = best;
      weights[i] = static_cast<float>(rule_.scale / sum);
    }
  }

  static constexpr double kBehindAll = -std::numeric_limits<double>::infinity();

  // A softmax has the order of its logits, but where a bias is added or scores of groups are.
  bool chooses_by_softmax() const {
    return rule_.scores == RouterScores::kSoftmax && !rule_.biases_logits &&
           (bias_ != nullptr || rule_.groups_used < rule_.groups);
  }
  // What a choice is made by. A NaN is behind all.
  double choice_score(int32_t expert) const {
    double score = logits_[expert];
    if (scores_alone() && !rule_.biases_logits) score = score_alone(expert);
    if (chooses_by_softmax()) score = std::exp(score - largest_) / total_;
    if (bias_ != nullptr) score += bias_[expert];
    return std::isnan(score) ? kBehindAll : score;
  }

  // Whether a score is of its own logit alone.
  bool scores_alone() const {
    return rule_.scores == RouterScores::kSigmoid || rule_.scores == RouterScores::kSqrtSoftplus;
  }
  double score_alone(int32_t expert) const {
    const double logit = logits_[expert];
    if (rule_.scores == RouterScores::kSigmoid) return activated(Activation::kSigmoid, logit);
    return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
  }

  // Of a softmax, over the sum of all scores.
  double score(int32_t expert, float largest) const {
    return scores_alone() ? score_alone(expert) : std::exp(double{logits_[expert]} - largest);
  }
  double sum_of_all(float largest) const {
    if (scores_alone()) return 1.0;
    double sum = 0;
    for (int32_t e = 0; e < rule_.experts; ++e) sum += score(e, largest);
    return sum;
  }

  void choose(int32_t* experts) const {
    const int32_t size = rule_.experts / rule_.groups;
    const auto by_score = [&](int32_t expert) { return choice_score(expert); };
    BestOf best(experts, rule_.used);
    // A group is looked at where fewer than `groups_used` are better: no memory but the stack.
    for (int32_t g = 0; g < rule_.groups; ++g) {
      if (!is_used(g)) continue;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) best.offer(e, by_score);
    }
    if (rule_.others_are_zero) choose_among_zeros(experts);
  }

  // `experts`: the best of the groups that are used, best first. The others' go before those whose
  // scores are below 0.
  void choose_among_zeros(int32_t* experts) const {
    const int32_t size = rule_.experts / rule_.groups;
    int32_t* const end = experts + rule_.used;
    int32_t* at = std::find_if(experts, end, [&](int32_t e) { return choice_score(e) < 0; });
    for (int32_t g = 0; g < rule_.groups && at < end; ++g) {
      if (is_used(g)) continue;
      for (int32_t e = g * size; e < (g + 1) * size && at < end; ++e) {
        std::copy_backward(at, end - 1, end);
        *at++ = e;
      }
    }
  }

  bool is_used(int32_t group) const {
    if (rule_.groups_used == rule_.groups) return true;
    const double own = group_score(group);
    int32_t better = 0;
    for (int32_t g = 0; g < rule_.groups; ++g) {
      const double other = group_score(g);
      if (other > own || (g < group && other == own)) ++better;
    }
    return better < rule_.groups_used;
  }

  double group_score(int32_t group) const {
    const int32_t size = rule_.experts / rule_.groups;
    double first = -std::numeric_limits<double>::infinity(), second = first;
    for (int32_t e = group * size; e < (group + 1) * size; ++e) {
      const double score = choice_score(e);
      if (score > first) {
        second = std::exchange(first, score);
      } else {
        second = std::max(second, score);
      }
    }
    return std::isinf(second) ? first : first + second;
  }

  const RouterRule& rule_;
  const float* const logits_;
  const float* const bias_;
  const int32_t* const given_;  // the row's experts, or null
  // Where a softmax is chosen by: its scores are exp(logit - largest) / total.
  float largest_ = 0;
  double total_ = 1;
};

// Rows by expert: counted, then dealt out in their order.
void group_by_expert(const RouteExpertsArgs& args, const int32_t* experts, const float* weights) {
  const RouterRule& rule = args.rule;
  const int64_t taken = args.logits.rows() * rule.used;
  const std::span<int32_t> starts = args.out.starts;
  std::fill(starts.begin(), starts.end(), 0);
  for (int64_t i = 0; i < taken; ++i) ++starts[static_cast<size_t>(experts[i]) + 1];
  for (size_t e = 1; e < starts.size(); ++e) starts[e] += starts[e - 1];
  // Here each start runs to its expert's end, which is the next one's start.
  for (int64_t i = 0; i < taken; ++i) {
    const auto at = static_cast<size_t>(starts[static_cast<size_t>(experts[i])]++);
    args.out.rows[at] = static_cast<int32_t>(i / rule.used);
    args.out.weights[at] = weights[i];
    if (args.scales != nullptr) args.out.weights[at] *= args.scales[experts[i]];
  }
  std::shift_right(starts.begin(), starts.end(), 1);
  starts.front() = 0;
}

void take_shared(const RouteExpertsArgs& args) {
  const auto first = static_cast<size_t>(args.logits.rows() * args.rule.used);
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    args.out.rows[first + static_cast<size_t>(t)] = static_cast<int32_t>(t);
    args.out.weights[first + static_cast<size_t>(t)] = RoutedRow(args, t).shared_weight();
  }
  args.out.starts.back() = static_cast<int32_t>(args.out.rows.size());
}

void note_places(const RouteExpertsArgs& args) {
  const auto each = static_cast<size_t>(args.rule.networks_of_row());
  // Of the list, what is whoever's that the places are wanted of.
  const ExpertRange own = args.own.value_or(ExpertRange{0, args.rule.experts});
  const auto start = [&](int32_t expert) {
    return static_cast<size_t>(args.out.starts[static_cast<size_t>(expert)]);
  };
  const auto is_own = [&](size_t i) {
    return (i >= start(own.first) && i < start(own.last)) || i >= start(args.rule.experts);
  };
  std::vector<size_t> next(static_cast<size_t>(args.logits.rows()));
  for (size_t t = 0; t < next.size(); ++t) next[t] = t * each;
  for (size_t i = 0; i < args.out.rows.size(); ++i) {
    args.out.places[next[static_cast<size_t>(args.out.rows[i])]++] =
        is_own(i) ? static_cast<int32_t>(i) : -1;
  }
}

// 16 rows of 64 experts take some 5 us: fewer are not worth a fork-join.
void reference(OpContext& context, const RouteExpertsArgs& args) {
  Workspace::Mark mark(context.workspace);
  const int64_t rows = args.logits.rows(), used = args.rule.used;
  auto* const experts = context.workspace.take_array<int32_t>(rows * used);
  auto* const weights = context.workspace.take_array<float>(rows * used);
  context.device.pool().parallel_for(rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      RoutedRow(args, t).route(experts + t * used, weights + t * used);
    }
  });
  group_by_expert(args, experts, weights);
  if (args.rule.shared != SharedExpert::kNone) take_shared(args);
  if (!args.out.places.empty()) note_places(args);
}

bool any_cpu(const DeviceTraits& traits, const RouteExpertsArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRouteExpertsKernels = {
    Kernel<RouteExpertsArgs>{"route_experts/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<RouteExpertsArgs> route_experts_cpu_kernels() { return kRouteExpertsKernels; }

}  // namespace headrace
