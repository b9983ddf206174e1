#include "tensor/gemm_trial.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

GemmTrial::GemmTrial(int candidates) : candidates_(static_cast<size_t>(candidates)) {
  CHECK(candidates > 0);
}

int GemmTrial::next() const {
  const auto least = std::min_element(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.started < b.started; });
  return static_cast<int>(least - candidates_.begin());
}

void GemmTrial::start(int candidate) { ++candidates_[static_cast<size_t>(candidate)].started; }

void GemmTrial::add(int candidate, double seconds) {
  candidates_[static_cast<size_t>(candidate)].seconds.push_back(seconds);
}

bool GemmTrial::complete() const {
  return std::all_of(candidates_.begin(), candidates_.end(), [](const Candidate& candidate) {
    return candidate.seconds.size() >= static_cast<size_t>(kSamples);
  });
}

// The lower of two middle ones: a timing that holds the load of a kernel is longer, none is shorter
// than the work.
double GemmTrial::seconds(int candidate) const {
  std::vector<double> sorted = candidates_[static_cast<size_t>(candidate)].seconds;
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() - 1) / 2];
}

int GemmTrial::best() const {
  CHECK(complete());
  int best = 0;
  for (int i = 1; i < static_cast<int>(candidates_.size()); ++i) {
    if (seconds(i) < seconds(best)) best = i;
  }
  return seconds(best) < (1 - kGain) * seconds(0) ? best : 0;
}

}  // namespace headrace
