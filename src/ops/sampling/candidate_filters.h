// Samplers that drop candidates by what they weigh beside each other. The work behind sample_row().
#pragma once

#include <span>

#include "ops/sampling/sample_row.h"

namespace headrace {

// The order of candidates: the best first.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

double weight_of(std::span<const Candidate> candidates);

// Locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the entropy of
// all, of which the first weigh at least p of their total; ties by lower id. Reorders; at least one
// is kept. REQUIRES: weights above 0
std::span<Candidate> keep_typical(std::span<Candidate> candidates, float p);

// XTC, "exclude top choices" (p-e-w 2024): of those that have at least `threshold` of the total all
// go but the least, where there are two or more. Reorders.
std::span<Candidate> exclude_top(std::span<Candidate> candidates, float threshold);

}  // namespace headrace
