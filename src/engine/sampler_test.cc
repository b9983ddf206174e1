// What the sampler tells the op of a sequence, against llama.cpp's rule of penalties in a window.
#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "ops/op_fixture.h"

namespace headrace::sampler_test {
namespace {

constexpr int32_t kWindowVocabulary = 24;

struct PenaltyCase {
  SamplingParams sampling;
  std::vector<TokenId> prompt, output;
  std::vector<float> logits;
};

PenaltyCase drawn_penalty_case(uint64_t seed) {
  uint64_t state = mix64(seed);
  const auto below = [&](uint64_t count) { return (state = mix64(state + 1)) % count; };
  PenaltyCase drawn;
  drawn.sampling.temperature = 0;
  drawn.sampling.repetition_penalty = std::array{1.0f, 1.5f, 0.5f}[below(3)];
  drawn.sampling.presence_penalty = std::array{0.0f, 1.0f, -0.5f}[below(3)];
  drawn.sampling.frequency_penalty = std::array{0.0f, 0.75f}[below(2)];
  drawn.sampling.penalty_window = std::array{1, 2, 5, 64, 1 << 30}[below(5)];
  for (uint64_t i = below(9) + 1; i > 0; --i) {
    drawn.prompt.push_back(static_cast<TokenId>(below(kWindowVocabulary)));
  }
  for (uint64_t i = below(9); i > 0; --i) {
    drawn.output.push_back(static_cast<TokenId>(below(kWindowVocabulary)));
  }
  for (int32_t i = 0; i < kWindowVocabulary; ++i) {
    drawn.logits.push_back(static_cast<float>(below(2000)) / 500.0f - 2.0f);
  }
  return drawn;
}

// llama.cpp's llama_sampler_penalties: what is counted is prompt and output alike, at the end.
TokenId best_in_window(const PenaltyCase& given) {
  std::vector<TokenId> all = given.prompt;
  all.insert(all.end(), given.output.begin(), given.output.end());
  const size_t window = std::min(all.size(), static_cast<size_t>(given.sampling.penalty_window));
  std::vector<float> logits = given.logits;
  for (int32_t token = 0; token < kWindowVocabulary; ++token) {
    const auto count =
        std::count(all.end() - static_cast<std::ptrdiff_t>(window), all.end(), token);
    if (count == 0) continue;
    float& logit = logits[static_cast<size_t>(token)];
    const float penalty = given.sampling.repetition_penalty;
    logit = logit > 0 ? logit / penalty : logit * penalty;
    logit -= static_cast<float>(count) * given.sampling.frequency_penalty +
             given.sampling.presence_penalty;
  }
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Of the sequences of one step, each with its own window.
std::vector<TokenId> sampled(const std::vector<PenaltyCase>& cases) {
  const auto count = static_cast<int32_t>(cases.size());
  SlotTable slots(count, 1, 4);
  std::vector<LogitRow> rows;
  std::vector<float> logits;
  StepPlan plan;
  for (int32_t i = 0; i < count; ++i) {
    const PenaltyCase& given = cases[static_cast<size_t>(i)];
    auto request = std::make_shared<Request>();
    request->prompt = given.prompt;
    request->sampling = given.sampling;
    Admission admission{.sequence = SequenceId(static_cast<uint64_t>(i) + 1),
                        .slot = SlotId(i),
                        .request = request,
                        .tokens = given.prompt};
    // A part of the output came before a preemption.
    const size_t before = given.output.size() / 2;
    admission.tokens.insert(admission.tokens.end(), given.output.begin(),
                            given.output.begin() + static_cast<std::ptrdiff_t>(before));
    rows.push_back({.sequence = admission.sequence, .slot = admission.slot, .samples = true});
    plan.admitted.push_back(std::move(admission));
    logits.insert(logits.end(), given.logits.begin(), given.logits.end());
  }
  slots.update(plan);
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<TokenId>& output = cases[static_cast<size_t>(i)].output;
    for (size_t at = output.size() / 2; at < output.size(); ++at) {
      slots.expect(SlotId(i));
      slots.append(SlotId(i), output[at]);
    }
  }
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Sampler sampler({});
  StepResult result;
  sampler.run(context, rows,
              ConstTensorView(reinterpret_cast<const std::byte*>(logits.data()), DType::kF32,
                              Shape{count, kWindowVocabulary}),
              slots, result);
  std::vector<TokenId> tokens;
  for (const StepResult::Row& row : result.rows) tokens.push_back(row.accepted[0]);
  return tokens;
}

TEST(Sampler, PenaltiesInAWindowAreLlamaCpps) {
  std::vector<PenaltyCase> cases;
  std::vector<TokenId> expected;
  int moved = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    cases.push_back(drawn_penalty_case(seed));
    expected.push_back(best_in_window(cases.back()));
    const std::vector<float>& raw = cases.back().logits;
    moved += std::max_element(raw.begin(), raw.end()) - raw.begin() != expected.back() ? 1 : 0;
  }
  EXPECT_EQ(sampled(cases), expected);
  EXPECT_GT(moved, 40);
}

TEST(Sampler, WithoutAWindowPresenceIsOfTheAnswerAlone) {
  PenaltyCase given = drawn_penalty_case(1);
  given.prompt = {3};
  given.output = {};
  given.logits.assign(kWindowVocabulary, 0.0f);
  given.logits[3] = 1.0f;
  given.sampling.repetition_penalty = 1;
  given.sampling.frequency_penalty = 0;
  given.sampling.presence_penalty = 2;
  given.sampling.penalty_window = -1;
  EXPECT_EQ(sampled({given})[0], 3);
  given.sampling.penalty_window = 4;
  EXPECT_EQ(sampled({given})[0], 0);
}

}  // namespace
}  // namespace headrace::sampler_test
