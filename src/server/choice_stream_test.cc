// Emissions in, deltas out: text whole and in order, tokens beside their text, one end.
#include "server/choice_stream.h"

#include <gtest/gtest.h>

#include "server/model_fixture.h"

namespace headrace::choice_stream_test {
namespace {

struct Fixture {
  TestModel model;

  // Feeds `answer` a byte a token with log-probabilities 0, -1, -2, ... and an end token.
  std::vector<ChoiceDelta> run(std::string_view answer, TextStreamOptions text = {},
                               bool end_token = true, size_t prompt_chars = 0) {
    ChoiceStream stream(model.tokenizer.get(), {std::move(text), prompt_chars});
    std::vector<ChoiceDelta> deltas;
    float logprob = 0;
    for (char c : answer) {
      deltas.push_back(
          stream.take(emission(model.byte_token(static_cast<unsigned char>(c)), logprob)));
      logprob -= 1;
      if (stream.finished()) return deltas;
    }
    Emission last;
    if (end_token) last = emission(model.control("<|im_end|>"), logprob);
    last.finish = end_token ? FinishReason::kStop : FinishReason::kLength;
    deltas.push_back(stream.take(std::move(last)));
    return deltas;
  }
  static Emission emission(TokenId token, float logprob) {
    Emission e;
    e.tokens = {token};
    e.logprobs = {TokenLogprobs{token, logprob, {}}};
    return e;
  }
};

ChoiceDelta join(const std::vector<ChoiceDelta>& deltas) {
  ChoiceDelta whole;
  for (const ChoiceDelta& delta : deltas) whole.append(delta);
  return whole;
}

TEST(ChoiceStream, CharactersLeaveWhole) {
  Fixture f;
  const std::string answer = "aé龍😀z";
  for (const ChoiceDelta& delta : f.run(answer)) {
    EXPECT_EQ(f.model.tokenizer->decode(f.model.tokenizer->encode(delta.text).value(), true),
              delta.text);
    EXPECT_EQ(delta.text.find("\xEF\xBF\xBD"), std::string::npos);
  }
  const ChoiceDelta whole = join(f.run(answer));
  EXPECT_EQ(whole.text, answer);
  EXPECT_EQ(whole.finish, FinishReason::kStop);
  EXPECT_EQ(whole.tokens.size(), answer.size() + 1);  // the end token is reported, without text
  EXPECT_EQ(whole.generated, static_cast<int32_t>(answer.size()) + 1);
}

TEST(ChoiceStream, TokensKeepTheirLogprobsAndOffsets) {
  Fixture f;
  const ChoiceDelta whole = join(f.run("aéz", {}, true, 10));
  const size_t offsets[] = {10, 11, 11, 12, 13};
  ASSERT_EQ(whole.tokens.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(whole.tokens[i].logprobs->logprob, -static_cast<float>(i));
    if (i == 2) continue;  // the second half of a character
    EXPECT_EQ(whole.tokens[i].offset, offsets[i]) << i;
  }
}

TEST(ChoiceStream, StopStringsCutTextAndKeepLogprobsAligned) {
  Fixture f;
  const std::vector<ChoiceDelta> deltas = f.run("hello END more", {.stops = {"END"}});
  const ChoiceDelta whole = join(deltas);
  EXPECT_EQ(whole.text, "hello ");
  EXPECT_EQ(whole.finish, FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(whole.stop_reason), "END");
  EXPECT_EQ(whole.generated, 9);
  ASSERT_EQ(whole.tokens.size(), 6u);
  for (size_t i = 0; i < whole.tokens.size(); ++i) {
    EXPECT_EQ(whole.tokens[i].logprobs->logprob, -static_cast<float>(i));
  }
  for (const ChoiceDelta& delta : deltas) EXPECT_EQ(delta.text.find('E'), std::string::npos);
}

TEST(ChoiceStream, APrefixOfAStopStringLeavesAtTheEnd) {
  Fixture f;
  const ChoiceDelta whole = join(f.run("hello EN", {.stops = {"END"}}, false));
  EXPECT_EQ(whole.text, "hello EN");
  EXPECT_EQ(whole.finish, FinishReason::kLength);
  EXPECT_EQ(whole.tokens.size(), 8u);
}

TEST(ChoiceStream, StopTokenIsTheReasonAndHidden) {
  Fixture f;
  ChoiceStream stream(f.model.tokenizer.get(), {});
  Emission e = Fixture::emission(f.model.byte_token('q'), -1);
  e.finish = FinishReason::kStop;
  e.stop_token = f.model.byte_token('q');
  const ChoiceDelta delta = stream.take(std::move(e));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(std::get<TokenId>(delta.stop_reason), f.model.byte_token('q'));
  EXPECT_EQ(delta.tokens.size(), 1u);
}

TEST(ChoiceStream, NothingFollowsTheEnd) {
  Fixture f;
  ChoiceStream stream(f.model.tokenizer.get(), {TextStreamOptions{.stops = {"a"}}, 0});
  EXPECT_EQ(stream.take(Fixture::emission(f.model.byte_token('a'), 0)).finish, FinishReason::kStop);
  EXPECT_TRUE(stream.take(Fixture::emission(f.model.byte_token('b'), 0)).empty());
}

// Marks of calls are control tokens of many vocabularies.
TEST(ChoiceStream, ControlTokensThatAreKeptReachTheParser) {
  Fixture f;
  const TokenId kept[] = {f.model.control("<|im_start|>")};
  for (const bool keep : {false, true}) {
    TextStreamOptions text;
    if (keep) text.kept = kept;
    ChoiceStream stream(f.model.tokenizer.get(), {std::move(text), 0, {}});
    ChoiceDelta whole;
    for (std::string_view token : {"<|im_start|>", "a", "<|endoftext|>"}) {
      whole.append(stream.take(Fixture::emission(f.model.control(token), 0)));
    }
    EXPECT_EQ(whole.text, keep ? "<|im_start|>a" : "a");
  }
}

}  // namespace
}  // namespace headrace::choice_stream_test
