// How many prompt tokens a step may hold beside decodes, so that the decodes keep their time per
// token: SARATHI's chunk (Agrawal et al., OSDI 2024), with a budget that follows what steps cost on
// this machine, measured as they run.
//
// Model: seconds = base + slope x prompt tokens. base is the moving mean of steps without prompts,
// slope that of what prompts add.
#pragma once

#include <cstdint>

namespace headrace {

class PrefillCeiling {
 public:
  // Fewer are never planned: prompts go on whatever decodes cost.
  static constexpr int32_t kTokensMin = 16;

  // target_seconds 0: no ceiling.
  explicit PrefillCeiling(double target_seconds) : target_(target_seconds) {}

  // A step with decodes or prompts took so long.
  void observe(int32_t prompt_tokens, int32_t decodes, double seconds);
  // At most, in a step with `decodes` decodes. `budget` is what the step has left.
  int32_t prompt_tokens(int32_t decodes, int32_t budget) const;
  // What a prompt token adds to a step; 0: not measured yet.
  double seconds_per_prompt_token() const { return slope_; }

 private:
  static constexpr double kWeight = 0.1;  // of the newest: a mean over about ten steps

  const double target_;
  double base_ = 0;
  double slope_ = 0;  // 0: not measured yet
};

}  // namespace headrace
