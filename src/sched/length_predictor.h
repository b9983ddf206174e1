// Predicts how long an answer gets, as a bucket, and learns from every answer that ends. It serves
// S3-like packing (Jin et al., NeurIPS 2023) and shortest job first.
//
// A linear classifier over hashed features of the prompt (its length, max_tokens, tenant, first and
// last tokens, the words it holds): online softmax regression, AdaGrad steps (Duchi et al. 2011).
// Before kExamplesMin answers it says that it knows nothing. Its figures are prequential: every
// answer is predicted first and learned then.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/request.h"

namespace headrace {

class LengthPredictor {
 public:
  static constexpr int32_t kExamplesMin = 64;
  static constexpr int32_t kShortest = 8;  // upper bound of bucket 0; each next has twice it

  explicit LengthPredictor(int32_t length_max);

  int32_t bucket_count() const { return static_cast<int32_t>(bounds_.size()); }
  int32_t upper_bound(int32_t bucket) const { return bounds_.at(static_cast<size_t>(bucket)); }
  int32_t bucket_of(int32_t length) const;

  // The smallest bucket that holds the answer with at least this probability; the last bucket while
  // nothing is known.
  int32_t bucket_at(const Request& request, double probability) const;
  bool knows() const { return examples_ >= kExamplesMin; }
  // Whether the predictor has learned much since it knew `predicted_at` answers: twice as many.
  bool is_stale(int64_t predicted_at) const {
    return knows() && examples_ >= 2 * predicted_at + kExamplesMin;
  }
  int64_t examples() const { return examples_; }
  void learn(const Request& request, int32_t length);

  struct Quality {
    int64_t examples = 0;
    double accuracy = 0;           // the most probable bucket was right
    double within_one = 0;         // or next to right
    double calibration_error = 0;  // mean |confidence - accuracy| over ten bins of confidence
  };
  Quality quality() const;

 private:
  static constexpr uint32_t kFeatures = 1 << 14;
  struct Bin {
    double confidence = 0;
    int64_t right = 0, count = 0;
  };

  std::vector<uint32_t> features_of(const Request& request) const;
  std::vector<double> probabilities(const std::vector<uint32_t>& features) const;  // [buckets]
  float& weight(uint32_t feature, size_t bucket) {
    return weights_[feature * bounds_.size() + bucket];
  }

  std::vector<int32_t> bounds_;  // upper, increasing
  std::vector<float> weights_;   // [features][buckets]
  std::vector<float> squares_;   // [features][buckets] sums of squared gradients
  int64_t examples_ = 0, right_ = 0, near_ = 0;
  std::vector<Bin> bins_;
};

}  // namespace headrace
