#include "sched/displacement.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {

// As the policy says; promoted sequences displace all behind them, live ones all of the background.
bool Displacement::displaces(const Sequence& head, const Sequence& running) const {
  if (head.rank.background) return false;
  if (running.rank.background) return true;
  if (head.rank.level == kPromotedLevel && policy_.rules().promoted_displaces) {
    return head.rank < running.rank;
  }
  return affordable() && policy_.preempts(head, running, again_seconds(running));
}

// As much of it is lost as of those that came back lately.
double Displacement::again_seconds(const Sequence& running) const {
  return lost_share_ * running.extent.most * pace_.cost().seconds_per_prompt_token();
}

Sequence* Displacement::victim_for(const Sequence& head) const {
  const std::span<Sequence* const> running = table_.running().all();
  const auto found = std::find_if(running.rbegin(), running.rend(),
                                  [&](const Sequence* each) { return displaces(head, *each); });
  return found == running.rend() ? nullptr : *found;
}

bool Displacement::affordable() const {
  return seconds_left_ >= 0 || std::isinf(policy_.rules().displacement_share);
}

// What is not used in ten minutes is forgotten; so is, over as long, what was lost.
void Displacement::earn(double step_seconds) {
  constexpr double kRemembered = 600;
  lost_share_ *= std::exp(-step_seconds / kRemembered);
  const double share = policy_.rules().displacement_share;
  if (std::isinf(share)) return;
  seconds_left_ = std::min(seconds_left_ + share * step_seconds, share * kRemembered);
}

// In a step of its own but for the weights, or in one whose first rows others have paid for: the
// dearer.
void Displacement::charge(Sequence& head, int32_t found_tokens) {
  constexpr double kPart = 0.1;  // that one sequence has in the share
  if (!std::exchange(head.displaced, false)) return;
  const double lost = head.known_length() - found_tokens;
  lost_share_ += kPart * (lost / head.known_length() - lost_share_);
  if (std::isinf(policy_.rules().displacement_share)) return;
  const StepCost& cost = pace_.cost();
  StepLoad again;
  again.add_prompt(found_tokens, head.known_length() - found_tokens);
  const double alone = cost.seconds(again) - cost.base;
  const double in_full_step = again.prompt_tokens * cost.seconds_per_prompt_token() +
                              again.prompt_context * cost.per_prompt_context;
  seconds_left_ -= std::max(alone, in_full_step);
}

}  // namespace headrace
