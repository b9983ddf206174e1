// Rules of tokens without a grammar: allowed ids, banned texts, the bound of thoughts, and all of
// them together.
#include "text/grammar/token_rules.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"
#include "text/output/thought_budget.h"
#include "text/vocab_fixture.h"

namespace headrace::token_rules_test {
namespace {

std::unique_ptr<Tokenizer> tiny_tokenizer() {
  Vocab vocab = tiny_vocab();
  vocab.end_ids = {vocab.eos};
  return *Tokenizer::create(std::move(vocab));
}

// The ids that may come next.
std::vector<TokenId> may_come(TokenMatcher& matcher, const Tokenizer& tokenizer) {
  std::vector<uint32_t> mask((static_cast<size_t>(tokenizer.vocab_size()) + 31) / 32, 0xABCDu);
  matcher.fill_mask(mask, kManyTokens);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
  }
  return ids;
}

std::vector<TokenId> all_but(const Tokenizer& tokenizer, std::span<const TokenId> without) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (std::find(without.begin(), without.end(), id) == without.end()) ids.push_back(id);
  }
  return ids;
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
  return *tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

TEST(TokenRules, OnlyAllowedIdsMayCome) {
  const auto tokenizer = tiny_tokenizer();
  const auto matcher = allow_tokens({7, 31, 32}, *tokenizer)->begin();
  for (TokenId next : {7, 32, 7}) {
    EXPECT_EQ(may_come(*matcher, *tokenizer), (std::vector<TokenId>{7, 31, 32}));
    EXPECT_FALSE(matcher->only_ends());
    matcher->accept(next);
  }
  EXPECT_TRUE(allow_tokens({tokenizer->vocab().end_ids[0]}, *tokenizer)->begin()->only_ends());
}

TEST(TokenRules, ASequenceIsBannedWhereItWouldBeComplete) {
  const auto tokenizer = tiny_tokenizer();
  const auto matcher = ban_sequences({{40}, {41, 42, 43}, {42, 44}})->begin();
  const auto expect_banned = [&](std::vector<TokenId> banned) {
    EXPECT_EQ(may_come(*matcher, *tokenizer), all_but(*tokenizer, banned));
  };
  expect_banned({40});
  matcher->accept(41);
  expect_banned({40});
  matcher->accept(42);
  expect_banned({40, 43, 44});
  matcher->accept(41);
  expect_banned({40});
  matcher->accept(41);
  matcher->accept(42);
  expect_banned({40, 43, 44});
}

// As in vLLM: a word alone, and behind a space where that is one other token.
TEST(TokenRules, WordsAreSequences) {
  const auto tokenizer = Tokenizer::create(smollm2_vocab());
  ASSERT_TRUE(tokenizer.ok());
  const auto sequences = [&](std::vector<std::string> words) {
    auto found = sequences_of_words(**tokenizer, words);
    CHECK(found.ok());
    return *found;
  };
  const auto ids = [&](std::string_view text) { return encoded(**tokenizer, text); };
  ASSERT_EQ(ids("the").size(), 1u);
  ASSERT_EQ(ids(" the").size(), 1u);
  using Sequences = std::vector<std::vector<TokenId>>;
  EXPECT_EQ(sequences({"the"}), (Sequences{ids("the"), ids(" the")}));
  EXPECT_EQ(sequences({" the"}), sequences({"the"}));
  EXPECT_EQ(sequences({"of the"}), (Sequences{ids("of the"), ids(" of the")}));
  // Behind a space it has one token more, the first of which is the space: that is not banned.
  ASSERT_EQ(ids(" 7").size(), ids("7").size() + 1);
  EXPECT_EQ(sequences({"7"}), Sequences{ids("7")});
}

TEST(TokenRules, WhatLeavesNothingGivesWay) {
  const auto tokenizer = tiny_tokenizer();
  const auto joined = join_constraints({allow_tokens({7, 8}, *tokenizer), ban_sequences({{7}}),
                                        ban_sequences({{8}}), ban_sequences({{7}})});
  const auto matcher = joined->begin();
  EXPECT_EQ(may_come(*matcher, *tokenizer), std::vector<TokenId>{8});
  const auto behind = join_constraints({allow_tokens({7}, *tokenizer), ban_sequences({{7, 7}})});
  const auto second = behind->begin();
  EXPECT_EQ(may_come(*second, *tokenizer), std::vector<TokenId>{7});
  second->accept(7);
  EXPECT_EQ(may_come(*second, *tokenizer), std::vector<TokenId>{7});
}

// --- The bound of thoughts
// -------------------------------------------------------------------------

struct Thoughts {
  explicit Thoughts(int32_t tokens, bool starts_in_reasoning) {
    dialect.reasoning = *choose_reasoning_dialect("qwen3", "");
    matcher = make_thought_budget(*tokenizer, dialect, {},
                                  {.tokens = tokens, .starts_in_reasoning = starts_in_reasoning})
                  ->begin();
  }
  bool is_free() const { return may_come(*matcher, *tokenizer) == all_but(*tokenizer, {}); }
  // What must come, to its end; each token is accepted.
  std::string forced() {
    std::string text;
    for (auto ids = may_come(*matcher, *tokenizer); ids.size() == 1;
         ids = may_come(*matcher, *tokenizer)) {
      text += tokenizer->token_bytes(ids[0]);
      matcher->accept(ids[0]);
    }
    EXPECT_TRUE(is_free());
    return text;
  }
  void say(std::string_view text) {
    for (char c : text) {
      EXPECT_TRUE(is_free()) << "in front of " << c;
      for (TokenId id : encoded(*tokenizer, std::string(1, c))) matcher->accept(id);
    }
  }

  const std::unique_ptr<Tokenizer> tokenizer = tiny_tokenizer();
  OutputDialect dialect;
  std::unique_ptr<TokenMatcher> matcher;
};

TEST(ThoughtBudget, EndsThoughtsThatThePromptHasOpened) {
  Thoughts thoughts(3, true);
  thoughts.say("abc");
  EXPECT_EQ(thoughts.forced(), "</think>");
  thoughts.say("The answer may be long.");
}

TEST(ThoughtBudget, EndsThoughtsThatTheModelOpens) {
  Thoughts thoughts(3, false);
  thoughts.say("<think>abc");
  EXPECT_EQ(thoughts.forced(), "</think>");
  thoughts.say("The answer");
}

TEST(ThoughtBudget, LeavesShorterThoughtsAndNoThoughtsAlone) {
  Thoughts shorter(12, true);
  shorter.say("abc</think>and words and words");
  Thoughts none(0, false);
  none.say("words and words");
}

TEST(ThoughtBudget, OfNoneLeavesNone) {
  Thoughts opened(0, true);
  EXPECT_EQ(opened.forced(), "</think>");
  Thoughts opens(0, false);
  opens.say("<think>");
  EXPECT_EQ(opens.forced(), "</think>");
}

// A mark that was begun when the budget was used up is no mark: the whole one comes.
TEST(ThoughtBudget, BeginsTheMarkAnew) {
  Thoughts thoughts(4, true);
  thoughts.say("a</t");
  EXPECT_EQ(thoughts.forced(), "</think>");
}

TEST(ThoughtBudget, IsForMarksOnly) {
  EXPECT_FALSE(bounds_thoughts(nullptr));
  EXPECT_FALSE(bounds_thoughts(*choose_reasoning_dialect("gpt-oss", "")));
  EXPECT_TRUE(bounds_thoughts(*choose_reasoning_dialect("granite", "")));
}

}  // namespace
}  // namespace headrace::token_rules_test
