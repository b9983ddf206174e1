#include "sched/beam_search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace::beam_search_test {
namespace {

constexpr TokenId kEnd = 9;

std::shared_ptr<const Request> make_request(BeamOptions beams, SamplingParams sampling = {}) {
  auto request = std::make_shared<Request>();
  request->prompt = {1};
  request->beams = beams;
  request->sampling = std::move(sampling);
  return request;
}

TokenLogprobs row(std::vector<std::pair<TokenId, float>> top) {
  return {.token = top.front().first, .logprob = top.front().second, .top = std::move(top)};
}

using Step = std::vector<std::pair<int32_t, TokenId>>;
Step advance(BeamSearch& search, const std::vector<TokenLogprobs>& rows, size_t places = 99) {
  std::vector<const TokenLogprobs*> seen;
  for (const TokenLogprobs& each : rows) seen.push_back(&each);
  Step step;
  for (const auto& [parent, token] : search.advance(seen, places)) step.emplace_back(parent, token);
  return step;
}

TEST(BeamSearch, TheBestContinuationsOfAllBeamsGoOn) {
  BeamSearch search(make_request({.width = 2}), std::vector{kEnd}, 10);
  EXPECT_EQ(search.beam_count(), 1u);
  EXPECT_EQ(advance(search, {row({{3, -0.5f}, {4, -1.0f}, {5, -3.0f}})}), (Step{{0, 3}, {0, 4}}));
  // -0.5 - 2, -0.5 - 2.5 against -1 - 0.1, -1 - 0.2: the second beam has both children.
  EXPECT_EQ(advance(search, {row({{3, -2.0f}, {4, -2.5f}}), row({{5, -0.1f}, {6, -0.2f}})}),
            (Step{{1, 5}, {1, 6}}));
}

TEST(BeamSearch, OfEqualOnesTheBetterBeamsGoesFirst) {
  BeamSearch search(make_request({.width = 3}), {}, 10);
  EXPECT_EQ(advance(search, {row({{3, -1.0f}, {2, -1.0f}, {8, -1.0f}, {1, -1.0f}})}),
            (Step{{0, 3}, {0, 2}, {0, 8}}));
}

// An end among the best `width` is an answer; one behind them is not, and takes no place.
TEST(BeamSearch, EndsAmongTheBestAreAnswers) {
  BeamSearch search(make_request({.width = 2}), std::vector{kEnd}, 10);
  EXPECT_EQ(advance(search, {row({{kEnd, -0.5f}, {4, -1.0f}, {5, -3.0f}})}),
            (Step{{0, 4}, {0, 5}}));
  ASSERT_EQ(search.answers().size(), 1u);
  EXPECT_EQ(search.answers()[0].tokens, (std::vector<TokenId>{kEnd}));
  EXPECT_EQ(search.answers()[0].finish, FinishReason::kStop);
  EXPECT_EQ(advance(search, {row({{3, -0.1f}, {4, -0.2f}, {kEnd, -0.3f}}), row({{5, -9.0f}})}),
            (Step{{0, 3}, {0, 4}}));
  EXPECT_EQ(search.answers().size(), 1u);
}

TEST(BeamSearch, ScoresAreDividedByLengthToThePenalty) {
  for (const float penalty : {0.0f, 1.0f, 2.0f}) {
    BeamSearch search(make_request({.width = 1, .length_penalty = penalty}), std::vector{kEnd}, 3);
    advance(search, {row({{3, -0.5f}})});
    advance(search, {row({{4, -0.25f}})});
    EXPECT_TRUE(advance(search, {row({{5, -1.0f}})}).empty());
    const BeamAnswer& answer = search.answers().at(0);
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.score.cumulative_logprob, -1.75);
    EXPECT_DOUBLE_EQ(answer.score.score, -1.75 / std::pow(3.0, penalty));
  }
}

// Two answers, with a beam at -1.2 that could still get better than -1 with a penalty of 1 and ten
// tokens, but not as it is.
TEST(BeamSearch, EarlyStoppingSaysWhenItIsOver) {
  const auto goes_on = [](EarlyStopping early_stopping) {
    BeamSearch search(make_request({.width = 2, .early_stopping = early_stopping}),
                      std::vector<TokenId>{kEnd, 8}, 10);
    return !advance(search, {row({{kEnd, -0.9f}, {8, -1.0f}, {3, -1.2f}, {4, -1.3f}})}).empty();
  };
  EXPECT_FALSE(goes_on(EarlyStopping::kYes));
  EXPECT_FALSE(goes_on(EarlyStopping::kNo));
  EXPECT_TRUE(goes_on(EarlyStopping::kNever));
}

TEST(BeamSearch, NoEndComesBeforeMinTokens) {
  BeamSearch search(make_request({.width = 1}, {.min_tokens = 1, .stop_token_ids = {7}}),
                    std::vector{kEnd}, 10);
  EXPECT_EQ(advance(search, {row({{kEnd, -0.1f}, {7, -0.2f}, {4, -0.3f}})}), (Step{{0, 4}}));
  advance(search, {row({{7, -0.1f}, {4, -0.2f}})});
  EXPECT_EQ(search.answers().at(0).stop_token, TokenId{7});
}

class EndsWithFive final : public AnswerEnd {
  bool ends_with(TokenSpan answer) const override { return answer.back() == 5; }
};

TEST(BeamSearch, TextsEndAnswersAndMayNarrowTheSearch) {
  auto request = std::make_shared<Request>(*make_request({.width = 2}));
  request->answer_end = std::make_shared<EndsWithFive>();
  BeamSearch search(request, {}, 10);
  EXPECT_EQ(advance(search, {row({{5, -0.1f}, {4, -0.2f}})}), (Step{{0, 4}}));
  EXPECT_EQ(search.answers().at(0).finish, FinishReason::kStop);
  EXPECT_EQ(search.beam_count(), 1u);
}

TEST(BeamSearch, ThereAreNoMoreBeamsThanPlaces) {
  BeamSearch search(make_request({.width = 3}), {}, 10);
  EXPECT_EQ(advance(search, {row({{3, -0.1f}, {4, -0.2f}, {5, -0.3f}})}, 2),
            (Step{{0, 3}, {0, 4}}));
}

TEST(BeamSearch, ToldAreTheLogprobsThatWereAskedFor) {
  for (const int32_t logprobs : {-1, 0, 1}) {
    BeamSearch search(make_request({.width = 1, .logprobs = logprobs}), {}, 1);
    advance(search, {row({{3, -0.5f}, {4, -1.0f}})});
    const BeamAnswer& answer = search.answers().at(0);
    ASSERT_EQ(answer.logprobs.size(), logprobs < 0 ? 0u : 1u);
    if (logprobs < 0) continue;
    EXPECT_EQ(answer.logprobs[0].logprob, -0.5f);
    EXPECT_EQ(answer.logprobs[0].top.size(), static_cast<size_t>(logprobs));
  }
}

}  // namespace
}  // namespace headrace::beam_search_test
