#include "ops/sampling/sample_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/rng.h"
#include "ops/sampling/candidate_filters.h"
#include "ops/sampling/dry_penalty.h"

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t block_count(int64_t vocabulary) { return (vocabulary + kLogitBlock - 1) / kLogitBlock; }
int64_t align64(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// A row and the maxima of its blocks, which lead to its largest values without a sort.
struct Row {
  const float* values;     // [V]
  int64_t size;            // V
  const float* block_max;  // [blocks]
  int64_t blocks;
  float largest;
};

// Empty when the row holds a NaN or +inf, or nothing above -inf.
std::optional<Row> look_at(const LogitMath& math, const SampleScratch& scratch, const float* values,
                           int64_t vocabulary) {
  const bool nan = math.block_maxima(values, vocabulary, scratch.block_max);
  const int64_t blocks = block_count(vocabulary);
  const float largest = *std::max_element(scratch.block_max, scratch.block_max + blocks);
  if (nan || !(std::abs(largest) < kInfinity)) return std::nullopt;
  return Row{values, vocabulary, scratch.block_max, blocks, largest};
}

template <class Visit>
void for_each_at_least(const Row& row, float threshold, const Visit& visit) {
  for (int64_t block = 0; block < row.blocks; ++block) {
    if (row.block_max[block] < threshold) continue;
    const int64_t last = std::min(row.size, (block + 1) * kLogitBlock);
    for (int64_t i = block * kLogitBlock; i < last; ++i) {
      if (row.values[i] >= threshold) visit(i);
    }
  }
}

TokenId argmax(const Row& row) {
  const int64_t block =
      std::find(row.block_max, row.block_max + row.blocks, row.largest) - row.block_max;
  const float* at = row.values + block * kLogitBlock;
  while (*at != row.largest) ++at;
  return static_cast<TokenId>(at - row.values);
}

// A value that at least k values of the row reach: each block gives one, its maximum, so the k-th
// largest maximum is below no more than the k-th largest value.
float bound_of_best(const Row& row, int64_t k, float* order) {
  if (k > row.blocks) return -kInfinity;
  std::copy(row.block_max, row.block_max + row.blocks, order);
  std::nth_element(order, order + k - 1, order + row.blocks, std::greater<>());
  return order[k - 1];
}

// --- the adjusted row: penalties, bias, bans ---

bool leaves_logits_alone(const SampleRow& row) {
  return row.repetition_penalty == 1.0f && row.presence_penalty == 0.0f &&
         row.frequency_penalty == 0.0f && row.dry == nullptr && row.logit_bias.empty() &&
         row.banned.empty() && row.allowed.empty();
}

float& at(const SampleScratch& scratch, int64_t vocabulary, TokenId token) {
  CHECK(token >= 0 && token < vocabulary);
  return scratch.values[token];
}

// Once for each token of prompt or output.
void penalise_repetition(const SampleScratch& scratch, int64_t vocabulary, const SampleRow& row) {
  std::memset(scratch.seen, 0, static_cast<size_t>((vocabulary + 63) / 64) * 8);
  const auto penalise = [&](TokenId token) {
    float& value = at(scratch, vocabulary, token);
    uint64_t& word = scratch.seen[token / 64];
    const uint64_t bit = uint64_t{1} << (token % 64);
    if (word & bit) return;
    word |= bit;
    value = value > 0 ? value / row.repetition_penalty : value * row.repetition_penalty;
  };
  for (const TokenId token : row.prompt) penalise(token);
  for (const TokenCount& output : row.output) penalise(output.token);
}

void keep_allowed(const SampleScratch& scratch, int64_t vocabulary,
                  std::span<const uint32_t> allowed) {
  CHECK(static_cast<int64_t>(allowed.size()) == (vocabulary + 31) / 32);
  for (int64_t first = 0; first < vocabulary; first += 32) {
    const uint32_t bits = allowed[static_cast<size_t>(first / 32)];
    if (bits == ~uint32_t{0}) continue;
    const int64_t last = std::min(vocabulary, first + 32);
    for (int64_t i = first; i < last; ++i) {
      if ((bits >> (i - first) & 1) == 0) scratch.values[i] = -kInfinity;
    }
  }
}

void adjust(const SampleScratch& scratch, const float* logits, int64_t vocabulary,
            const SampleRow& row) {
  std::memcpy(scratch.values, logits, static_cast<size_t>(vocabulary) * sizeof(float));
  if (row.repetition_penalty != 1.0f) penalise_repetition(scratch, vocabulary, row);
  for (const TokenCount& output : row.output) {
    if (output.count <= 0) continue;
    at(scratch, vocabulary, output.token) -=
        row.frequency_penalty * static_cast<float>(output.count) + row.presence_penalty;
  }
  if (row.dry != nullptr) {
    for_each_repeating(*row.dry, row.history, [&](TokenId token, float penalty) {
      at(scratch, vocabulary, token) -= penalty;
    });
  }
  for (const auto& [token, bias] : row.logit_bias) at(scratch, vocabulary, token) += bias;
  for (const TokenId token : row.banned) at(scratch, vocabulary, token) = -kInfinity;
  if (!row.allowed.empty()) keep_allowed(scratch, vocabulary, row.allowed);
}

// The row to choose from; empty when the raw row is at fault or everything in it is banned.
std::optional<Row> adjusted_row(const LogitMath& math, const SampleScratch& scratch,
                                const float* logits, int64_t vocabulary, const SampleRow& row) {
  const std::optional<Row> raw = look_at(math, scratch, logits, vocabulary);
  if (!raw || leaves_logits_alone(row)) return raw;
  adjust(scratch, logits, vocabulary, row);
  return look_at(math, scratch, scratch.values, vocabulary);
}

// --- the kept set ---

// A value below which no candidate can be kept. Values whose weight is at most (1 - p) total / V
// weigh (1 - p) total together at most, so top-p drops them all; half of that leaves room for
// rounding.
float weight_bound(const SampleRow& row, const Row& values, double total) {
  float bound = std::numeric_limits<float>::min();  // a weight of 0 is never drawn
  bound = std::max(bound, row.min_p);
  // Where others cut, too, the total that p is a part of is that of what they keep: it is summed up
  // from candidates, of which none may be missing.
  const bool alone =
      row.top_k <= 0 && row.typical_p >= 1.0f && row.min_p <= 0 && row.top_n_sigma <= 0;
  if (row.top_p < 1.0f && alone) {
    const double share = (1.0 - static_cast<double>(row.top_p)) / static_cast<double>(values.size);
    bound = std::max(bound, static_cast<float>(0.5 * share * total));
  }
  return bound;
}

std::span<Candidate> keep_top_k(std::span<Candidate> candidates, int32_t k) {
  if (k <= 0 || candidates.size() <= static_cast<size_t>(k)) return candidates;
  std::nth_element(candidates.begin(), candidates.begin() + k - 1, candidates.end(), better);
  return candidates.first(static_cast<size_t>(k));
}

// The shortest prefix, best first, that weighs at least p of `total`. The order is made piece by
// piece: a peaked row ends in the first.
std::span<Candidate> keep_top_p(std::span<Candidate> candidates, float p, double total) {
  if (p >= 1.0f) return candidates;
  const double goal = static_cast<double>(p) * total;
  double reached = 0.0;
  for (size_t ordered = 0, piece = 64; ordered < candidates.size(); piece *= 4) {
    const size_t last = std::min(candidates.size(), ordered + piece);
    const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(ordered);
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(last);
    if (end != candidates.end()) std::nth_element(begin, end, candidates.end(), better);
    std::sort(begin, end, better);
    for (; ordered < last; ++ordered) {
      reached += candidates[ordered].weight;
      if (reached >= goal) return candidates.first(ordered + 1);
    }
  }
  return candidates;
}

// The largest value less so many standard deviations of the values that are finite.
float sigma_bound(const Row& values, float deviations) {
  double sum = 0, squares = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < values.size; ++i) {
    if (!(values.values[i] > -kInfinity)) continue;
    const double value = static_cast<double>(values.values[i]) - values.largest;
    sum += value;
    squares += value * value;
    ++count;
  }
  const double mean = sum / static_cast<double>(count);
  const double variance = std::max(0.0, squares / static_cast<double>(count) - mean * mean);
  return static_cast<float>(values.largest - deviations * std::sqrt(variance));
}

// Candidates are in id order until top-k or top-p reorders them.
std::span<Candidate> kept_candidates(const SampleScratch& scratch, const Row& values,
                                     const SampleRow& row, double total) {
  const float weight_min = weight_bound(row, values, total);
  float value_min = row.top_k > 0 ? bound_of_best(values, row.top_k, scratch.order) : -kInfinity;
  if (row.top_n_sigma > 0) value_min = std::max(value_min, sigma_bound(values, row.top_n_sigma));
  size_t count = 0;
  for_each_at_least(values, value_min, [&](int64_t i) {
    if (scratch.weights[i] < weight_min) return;
    scratch.candidates[count++] = {values.values[i], scratch.weights[i], static_cast<TokenId>(i)};
  });
  std::span<Candidate> kept = keep_top_k({scratch.candidates, count}, row.top_k);
  if (row.typical_p < 1.0f) kept = keep_typical(kept, row.typical_p);
  if (row.top_p < 1.0f) {
    const bool all_of_row =
        row.top_k <= 0 && row.min_p <= 0 && row.top_n_sigma <= 0 && row.typical_p >= 1.0f;
    kept = keep_top_p(kept, row.top_p, all_of_row ? total : weight_of(kept));
  }
  if (row.xtc_probability > 0) {
    const uint64_t bits = counter_hash(row.seed, row.choice, row.position, RngPurpose::kExclusion);
    if (uniform01(bits) < row.xtc_probability) kept = exclude_top(kept, row.xtc_threshold);
  }
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  return kept;
}

// --- the draw ---

TokenId draw_from(std::span<const Candidate> kept, double u) {
  double left = u * weight_of(kept);
  for (const Candidate& candidate : kept) {
    if (left < candidate.weight) return candidate.token;
    left -= candidate.weight;
  }
  return kept.back().token;  // rounding only: u < 1
}

TokenId draw_from_row(const SampleScratch& scratch, const Row& values, double total, double u) {
  double left = u * total;
  int64_t block = 0;
  while (block + 1 < values.blocks && left >= scratch.block_sum[block]) {
    left -= scratch.block_sum[block++];
  }
  TokenId last_possible = argmax(values);  // rounding only
  const int64_t end = std::min(values.size, (block + 1) * kLogitBlock);
  for (int64_t i = block * kLogitBlock; i < end; ++i) {
    if (scratch.weights[i] <= 0) continue;
    last_possible = static_cast<TokenId>(i);
    if (left < scratch.weights[i]) break;
    left -= scratch.weights[i];
  }
  return last_possible;
}

double fill_weights(const LogitMath& math, const SampleScratch& scratch, const Row& row,
                    float factor) {
  math.exp_weights(row.values, row.size, row.largest, factor, scratch.weights, scratch.block_sum);
  double total = 0.0;
  for (int64_t block = 0; block < row.blocks; ++block) total += scratch.block_sum[block];
  return total;
}

// Colder than 1e-30 is no different from 1e-30, and 1 / 1e-30 is finite.
float factor_of(const SampleRow& row) { return 1.0f / std::max(row.temperature, 1e-30f); }

TokenId choose(const LogitMath& math, const SampleScratch& scratch, const Row& values,
               const SampleRow& row) {
  if (row.temperature <= 0.0f) return argmax(values);
  const double total = fill_weights(math, scratch, values, factor_of(row));
  const double u = uniform01(counter_hash(row.seed, row.choice, row.position, RngPurpose::kSample));
  const bool filtered = row.top_k > 0 || row.top_p < 1.0f || row.min_p > 0.0f ||
                        row.top_n_sigma > 0.0f || row.typical_p < 1.0f ||
                        row.xtc_probability > 0.0f;
  if (!filtered) return draw_from_row(scratch, values, total, u);
  return draw_from(kept_candidates(scratch, values, row, total), u);
}

// --- log-probabilities ---

void report_logprobs(const LogitMath& math, const SampleScratch& scratch, const Row& row,
                     int32_t count, SampleResult& result) {
  const double log_total = std::log(fill_weights(math, scratch, row, 1.0f));
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - row.largest) - log_total);
  };
  result.logprob = logprob(row.values[result.token]);
  const int64_t k = std::min<int64_t>(count, row.size);
  if (k <= 0) return;
  size_t found = 0;
  for_each_at_least(row, bound_of_best(row, k, scratch.order), [&](int64_t i) {
    scratch.candidates[found++] = {row.values[i], 0.0f, static_cast<TokenId>(i)};
  });
  std::partial_sort(scratch.candidates, scratch.candidates + k, scratch.candidates + found, better);
  result.top.reserve(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    result.top.push_back({scratch.candidates[i].token, logprob(scratch.candidates[i].value)});
  }
}

}  // namespace

int64_t SampleScratch::bytes(int64_t vocabulary) {
  const int64_t floats = align64(vocabulary * 4);
  const int64_t block_floats = align64(block_count(vocabulary) * 4);
  return 2 * floats + 3 * block_floats +
         align64(vocabulary * static_cast<int64_t>(sizeof(Candidate))) +
         align64((vocabulary + 63) / 64 * 8);
}

SampleScratch SampleScratch::carve(std::byte* memory, int64_t vocabulary) {
  const auto take = [&](int64_t bytes) {
    std::byte* taken = memory;
    memory += align64(bytes);
    return taken;
  };
  const int64_t blocks = block_count(vocabulary);
  SampleScratch scratch;
  scratch.values = reinterpret_cast<float*>(take(vocabulary * 4));
  scratch.weights = reinterpret_cast<float*>(take(vocabulary * 4));
  scratch.block_max = reinterpret_cast<float*>(take(blocks * 4));
  scratch.block_sum = reinterpret_cast<float*>(take(blocks * 4));
  scratch.order = reinterpret_cast<float*>(take(blocks * 4));
  scratch.candidates =
      reinterpret_cast<Candidate*>(take(vocabulary * static_cast<int64_t>(sizeof(Candidate))));
  scratch.seen = reinterpret_cast<uint64_t*>(take((vocabulary + 63) / 64 * 8));
  return scratch;
}

SampleResult sample_row(const LogitMath& math, const SampleScratch& scratch, const float* logits,
                        int64_t vocabulary, const SampleRow& row) {
  SampleResult result;
  const std::optional<Row> adjusted = adjusted_row(math, scratch, logits, vocabulary, row);
  if (!adjusted) {
    result.fault = true;
    return result;
  }
  result.token = choose(math, scratch, *adjusted, row);
  if (row.logprobs >= 0) {
    // The adjusted row's maxima may have replaced the raw row's.
    report_logprobs(math, scratch, *look_at(math, scratch, logits, vocabulary), row.logprobs,
                    result);
  }
  return result;
}

std::vector<TokenId> kept_tokens(const LogitMath& math, const SampleScratch& scratch,
                                 const float* logits, int64_t vocabulary, const SampleRow& row) {
  std::vector<TokenId> tokens;
  const std::optional<Row> adjusted = adjusted_row(math, scratch, logits, vocabulary, row);
  if (!adjusted) return tokens;
  const double total = fill_weights(math, scratch, *adjusted, factor_of(row));
  for (const Candidate& kept : kept_candidates(scratch, *adjusted, row, total)) {
    tokens.push_back(kept.token);
  }
  return tokens;
}

SampleResult score_token(const LogitMath& math, const SampleScratch& scratch, const float* logits,
                         int64_t vocabulary, TokenId token, int32_t logprobs) {
  CHECK(token >= 0 && token < vocabulary);
  SampleResult result;
  const std::optional<Row> row = look_at(math, scratch, logits, vocabulary);
  if (!row) {
    result.fault = true;
    return result;
  }
  result.token = token;
  report_logprobs(math, scratch, *row, logprobs, result);
  return result;
}

}  // namespace headrace
