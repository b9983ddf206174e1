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
  // Of weights w = exp(v) of a total W the surprise is ln W - v: from the entropy it differs as v
  // does from the mean of v, weighed. v is the logarithm of the weight, which is taken once.
  const double total = weight_of(candidates);
  double mean = 0.0;
  for (Candidate& each : candidates) {
    each.distance = std::log(each.weight);
    mean += each.weight / total * each.distance;
  }
  for (Candidate& each : candidates) {
    each.distance = std::abs(each.distance - static_cast<float>(mean));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.token < b.token;
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
