#include "sched/length_predictor.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "sim/trace.h"

namespace headrace::length_predictor_test {
namespace {

struct Learned {
  LengthPredictor::Quality quality;
  double held = 0;          // answers within the bucket of 95 %
  double over_reserve = 0;  // tokens reserved for each token of an answer
  double worst_case = 0;    // the same with max_tokens
};

// Predicts and learns a whole trace; figures of its second half.
Learned learn(const std::string& kind) {
  const auto trace = make_trace({.kind = kind, .requests = 4000, .max_model_len = 4096}).value();
  LengthPredictor predictor(4096);
  Learned learned;
  double held = 0, reserved = 0, most = 0, output = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    Request request{.prompt = prompt_of(trace[i], 32000)};
    request.sampling.max_tokens = trace[i].max_tokens;
    if (i >= trace.size() / 2) {
      const int32_t bucket = predictor.bucket_at(request, 0.95);
      held += trace[i].output <= predictor.upper_bound(bucket) ? 1 : 0;
      reserved += std::min(predictor.upper_bound(bucket), trace[i].max_tokens);
      most += trace[i].max_tokens;
      output += trace[i].output;
    }
    predictor.learn(request, trace[i].output);
  }
  learned.quality = predictor.quality();
  learned.held = held / (static_cast<double>(trace.size()) / 2);
  learned.over_reserve = reserved / output;
  learned.worst_case = most / output;
  std::printf(
      "%s: %.0f %% right, %.0f %% within one bucket, calibration error %.2f; the bucket of 95 %% "
      "holds %.1f %% and reserves %.1f x the answer (max_tokens: %.1f x)\n",
      kind.c_str(), 100 * learned.quality.accuracy, 100 * learned.quality.within_one,
      learned.quality.calibration_error, 100 * learned.held, learned.over_reserve,
      learned.worst_case);
  return learned;
}

TEST(LengthPredictor, BucketsDoubleUpToTheLimit) {
  const LengthPredictor predictor(100);
  EXPECT_EQ(predictor.bucket_count(), 5);  // 8, 16, 32, 64, 100
  EXPECT_EQ(predictor.bucket_of(8), 0);
  EXPECT_EQ(predictor.bucket_of(9), 1);
  EXPECT_EQ(predictor.bucket_of(1000), 4);
}

TEST(LengthPredictor, WhoKnowsNothingSaysTheMost) {
  const LengthPredictor predictor(4096);
  Request request{.prompt = {1, 2, 3}};
  request.sampling.max_tokens = 300;
  EXPECT_EQ(predictor.upper_bound(predictor.bucket_at(request, 0.5)), 512);
}

TEST(LengthPredictor, LearnsWhatThePromptTells) {
  const Learned learned = learn("learnable");
  EXPECT_GT(learned.quality.accuracy, 0.5);
  EXPECT_GT(learned.quality.within_one, 0.9);
  EXPECT_LT(learned.quality.calibration_error, 0.15);
  EXPECT_GT(learned.held, 0.9);
  EXPECT_LT(learned.over_reserve, learned.worst_case / 2);
}

TEST(LengthPredictor, IsNotSureOfWhatNothingTells) {
  const Learned learned = learn("random");
  EXPECT_LT(learned.quality.calibration_error, 0.15);
  EXPECT_GT(learned.held, 0.9);
}

}  // namespace
}  // namespace headrace::length_predictor_test
