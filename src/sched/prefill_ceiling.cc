#include "sched/prefill_ceiling.h"

#include <algorithm>

namespace headrace {

void PrefillCeiling::observe(int32_t prompt_tokens, int32_t decodes, double seconds) {
  if (seconds <= 0) return;
  if (prompt_tokens == 0) {
    if (decodes > 0) base_ = base_ == 0 ? seconds : base_ + kWeight * (seconds - base_);
    return;
  }
  // A few tokens say little about the slope: the step's noise is as large.
  if (prompt_tokens < kTokensMin) return;
  const double slope = std::max(0.0, seconds - base_) / prompt_tokens;
  slope_ = slope_ == 0 ? slope : slope_ + kWeight * (slope - slope_);
}

int32_t PrefillCeiling::prompt_tokens(int32_t decodes, int32_t budget) const {
  if (target_ <= 0 || decodes == 0 || slope_ <= 0) return budget;
  const double tokens = std::clamp((target_ - base_) / slope_, 0.0, 1e9);
  return std::min(budget, std::max(kTokensMin, static_cast<int32_t>(tokens)));
}

}  // namespace headrace
