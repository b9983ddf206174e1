#include "ops/sampling/candidate_filters.h"

#include <algorithm>
#include <cmath>

namespace headrace {
double weight_of(std::span<const Candidate> candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

std::span<Candidate> keep_typical(std::span<Candidate> candidates, float p) {
  const double total = weight_of(candidates);
  const auto surprise = [&](const Candidate& candidate) {
    return -std::log(candidate.weight / total);
  };
  double entropy = 0.0;
  for (const Candidate& each : candidates) entropy += each.weight / total * surprise(each);
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const double from_a = std::abs(surprise(a) - entropy), from_b = std::abs(surprise(b) - entropy);
    return from_a != from_b ? from_a < from_b : a.token < b.token;
  });
  const double goal = static_cast<double>(p) * total;
  double reached = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    reached += candidates[i].weight;
    if (reached >= goal) return candidates.first(i + 1);
  }
  return candidates;
}

std::span<Candidate> exclude_top(std::span<Candidate> candidates, float threshold) {
  const double least = static_cast<double>(threshold) * weight_of(candidates);
  const auto others = std::partition(candidates.begin(), candidates.end(),
                                     [&](const Candidate& c) { return c.weight >= least; });
  const auto top = others - candidates.begin();
  if (top < 2) return candidates;
  // The least of them goes before the others. (The greatest by an order that puts the best first.)
  std::iter_swap(std::max_element(candidates.begin(), others, better), others - 1);
  return candidates.subspan(static_cast<size_t>(top) - 1);
}

}  // namespace headrace
