#include "sched/length_predictor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/rng.h"

namespace headrace {
namespace {

constexpr size_t kFirstTokens = 16, kLastTokens = 32, kWordsMax = 128;
// A feature seen once moves little: squares_ begin at 1, so that the many words seen by chance do
// not drown the few that tell.
constexpr double kStep = 3.0;
constexpr size_t kBins = 10;

enum class FeatureKind : uint64_t {
  kBias,
  kPromptLength,
  kMaxTokens,
  kTenant,
  kFirst,
  kLast,
  kWord
};

}  // namespace

LengthPredictor::LengthPredictor(int32_t length_max) : bins_(kBins) {
  for (int64_t bound = kShortest; bound < length_max; bound *= 2) {
    bounds_.push_back(static_cast<int32_t>(bound));
  }
  bounds_.push_back(std::max(length_max, 1));
  weights_.assign(kFeatures * bounds_.size(), 0.0f);
  squares_.assign(kFeatures * bounds_.size(), 1.0f);
}

int32_t LengthPredictor::bucket_of(int32_t length) const {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), length);
  return static_cast<int32_t>(std::min(at - bounds_.begin(), std::ssize(bounds_) - 1));
}

std::vector<uint32_t> LengthPredictor::features_of(const Request& request) const {
  std::vector<uint32_t> features;
  const auto add = [&](FeatureKind kind, uint64_t value) {
    features.push_back(static_cast<uint32_t>(mix64(mix64(static_cast<uint64_t>(kind)) ^ value) %
                                             uint64_t{kFeatures}));
  };
  const std::vector<TokenId>& prompt = request.prompt;
  add(FeatureKind::kBias, 0);
  add(FeatureKind::kPromptLength, std::bit_width(prompt.size()));
  add(FeatureKind::kMaxTokens,
      std::bit_width(static_cast<uint32_t>(std::max(0, request.sampling.max_tokens))));
  add(FeatureKind::kTenant, std::hash<std::string>()(request.tenant));
  const auto token = [&](size_t i) { return static_cast<uint64_t>(prompt[i]); };
  for (size_t i = 0; i < std::min(kFirstTokens, prompt.size()); ++i) {
    add(FeatureKind::kFirst, token(i) << 8 | i);
  }
  const size_t last = prompt.size() - std::min(kLastTokens, prompt.size());
  for (size_t i = last; i < prompt.size(); ++i) add(FeatureKind::kLast, token(i));
  const size_t words = prompt.size() - std::min(kWordsMax, prompt.size());
  for (size_t i = words; i < prompt.size(); ++i) add(FeatureKind::kWord, token(i));
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
  return features;
}

std::vector<double> LengthPredictor::probabilities(const std::vector<uint32_t>& features) const {
  const size_t buckets = bounds_.size();
  std::vector<double> scores(buckets, 0.0);
  for (uint32_t feature : features) {
    for (size_t b = 0; b < buckets; ++b) {
      scores[b] += static_cast<double>(weights_[feature * buckets + b]);
    }
  }
  // The more features, the less each says.
  const double scale = 1 / std::sqrt(static_cast<double>(features.size()));
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp((score - most) * scale);
  for (double& score : scores) score /= sum;
  return scores;
}

int32_t LengthPredictor::bucket_at(const Request& request, double probability) const {
  const int32_t most = bucket_of(request.sampling.max_tokens);
  if (!knows()) return most;
  const std::vector<double> p = probabilities(features_of(request));
  double sum = 0;
  for (int32_t bucket = 0; bucket < most; ++bucket) {
    sum += p[static_cast<size_t>(bucket)];
    if (sum >= probability) return bucket;
  }
  return most;
}

void LengthPredictor::learn(const Request& request, int32_t length) {
  const std::vector<uint32_t> features = features_of(request);
  const std::vector<double> p = probabilities(features);
  const auto truth = static_cast<size_t>(bucket_of(length));
  const auto guess = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  if (knows()) {
    right_ += guess == truth ? 1 : 0;
    near_ += guess + 1 >= truth && truth + 1 >= guess ? 1 : 0;
    Bin& bin = bins_[std::min(kBins - 1, static_cast<size_t>(p[guess] * kBins))];
    bin.confidence += p[guess];
    bin.right += guess == truth ? 1 : 0;
    ++bin.count;
  }
  ++examples_;
  const double scale = 1 / std::sqrt(static_cast<double>(features.size()));
  for (size_t b = 0; b < bounds_.size(); ++b) {
    const double gradient = (p[b] - (b == truth ? 1 : 0)) * scale;
    for (uint32_t feature : features) {
      float& square = squares_[feature * bounds_.size() + b];
      square += static_cast<float>(gradient * gradient);
      weight(feature, b) -= static_cast<float>(kStep * gradient / std::sqrt(double{square}));
    }
  }
}

LengthPredictor::Quality LengthPredictor::quality() const {
  Quality quality{.examples = std::max<int64_t>(0, examples_ - kExamplesMin)};
  if (quality.examples == 0) return quality;
  const auto count = static_cast<double>(quality.examples);
  quality.accuracy = static_cast<double>(right_) / count;
  quality.within_one = static_cast<double>(near_) / count;
  for (const Bin& bin : bins_) {
    quality.calibration_error += std::abs(bin.confidence - static_cast<double>(bin.right)) / count;
  }
  return quality;
}

}  // namespace headrace
