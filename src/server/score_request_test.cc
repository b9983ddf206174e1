// Pairs of texts that a decoder's classifier reads as one prompt.
#include "server/score_request.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/model_fixture.h"

namespace headrace::score_request_test {
namespace {

std::vector<TokenId> prompt_of(const TestModel& text, const ScoreRequest& request,
                               const ChatPromptEncoder* prompts = nullptr) {
  const auto texts = prompt_texts(request, prompts, text.tokenizer.get(),
                                  {.dimensions = 1, .length_max = 16}, RequestLimits());
  CHECK(texts.ok() && texts->size() == 1);
  return texts->front().ids;
}

ScoreRequest pair_request(std::string first, std::string second) {
  return {.first = {std::move(first)},
          .second = {std::move(second)},
          .first_field = "query",
          .second_field = "documents"};
}

// One behind the other, or where a template puts them, in which their control tokens are letters.
TEST(ScoreRequest, APairOfADecoderIsOnePrompt) {
  const TestModel text;
  EXPECT_EQ(prompt_of(text, pair_request("ab", "cd")), *text.tokenizer->encode("abcd"));
  const auto pairs =
      ChatTemplate::compile("{{ messages[1]['content'] }}<{{ messages[0]['content'] }}").value();
  const auto prompts = ChatPromptEncoder::create(*text.tokenizer, pairs).value();
  EXPECT_EQ(prompt_of(text, pair_request("ab", "cd"), prompts.get()),
            *text.tokenizer->encode("cd<ab"));
}

TEST(ScoreRequest, APairOfADecoderLosesTheEndOfItsDocument) {
  const TestModel text;
  ScoreRequest request = pair_request("ab", "0123456789abcdefgh");
  const auto refused = prompt_texts(request, nullptr, text.tokenizer.get(),
                                    {.dimensions = 1, .length_max = 16}, RequestLimits());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().field(), "documents");
  request.second_tokens_max = 3;
  auto kept = *text.tokenizer->encode(request.second[0], {.add_special = false});
  kept.resize(3);
  EXPECT_EQ(prompt_of(text, request),
            *text.tokenizer->encode("ab" + text.tokenizer->decode(kept, false)));
  request.truncate = 5;
  request.second_tokens_max = 0;
  const std::vector<TokenId> cut = prompt_of(text, request);
  EXPECT_EQ(cut.size(), 5u);
  const auto whole = *text.tokenizer->encode("ab0123456789");
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), whole.begin()));
  request.first = {"0123456789abcdefgh"};  // no document makes room for it
  EXPECT_FALSE(prompt_texts(request, nullptr, text.tokenizer.get(),
                            {.dimensions = 1, .length_max = 16}, RequestLimits())
                   .ok());
}

}  // namespace
}  // namespace headrace::score_request_test
