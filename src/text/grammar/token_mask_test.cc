// Which tokens may come next: every bit of a mask against the bytes of its token, and documents
// drawn from nothing but masks against an independent reader of their schema.
#include <bit>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/detokenizer.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/grammar_automaton.h"
#include "text/grammar/grammar_constraint.h"
#include "text/grammar/schema_check_fixture.h"
#include "text/utf8.h"
#include "text/vocab_fixture.h"

namespace headrace::token_mask_test {
namespace {

using Kind = AnswerForm::Kind;

AnswerPlan plan_of(Kind kind, const std::string& text) {
  AnswerPlan plan;
  plan.words.kind = kind;
  if (kind == Kind::kJsonSchema) {
    plan.words.schema = *parse_json(text);
  } else {
    plan.words.pattern = text;
  }
  return plan;
}

std::shared_ptr<const Grammar> grammar_of(const AnswerPlan& plan) {
  auto grammar = answer_grammar(plan);
  CHECK(grammar.ok());
  return *grammar;
}

bool has_bit(const std::vector<uint32_t>& mask, TokenId id) {
  return mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
}

struct Walk {
  std::vector<TokenId> ids;
  bool ended = false;
};

void clear_bit(std::vector<uint32_t>& mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
}

size_t count_bits(const std::vector<uint32_t>& mask) {
  size_t count = 0;
  for (uint32_t word : mask) count += static_cast<size_t>(std::popcount(word));
  return count;
}

// The token of the bit before which `index` others are set.
TokenId nth_token(const std::vector<uint32_t>& mask, size_t index) {
  for (size_t word = 0;; ++word) {
    const auto count = static_cast<size_t>(std::popcount(mask[word]));
    if (index >= count) {
      index -= count;
      continue;
    }
    uint32_t bits = mask[word];
    for (; index > 0; --index) bits &= bits - 1;
    return static_cast<TokenId>(word * 32) + std::countr_zero(bits);
  }
}

// Draws from masks alone. `look` sees the ids so far and the mask of the next.
template <class Look>
Walk walk(const TokenConstraint& constraint, const Tokenizer& tokenizer, uint64_t seed,
          size_t tokens_max, const Look& look, bool in_time = false) {
  Walk out;
  const auto matcher = constraint.begin();
  std::vector<uint32_t> mask((static_cast<size_t>(tokenizer.vocab_size()) + 31) / 32);
  while (out.ids.size() < tokens_max) {
    const auto left = static_cast<int32_t>(tokens_max - out.ids.size());
    matcher->fill_mask(mask, in_time ? left : kManyTokens);
    look(out.ids, mask);
    bool can_end = false;
    for (TokenId id : tokenizer.vocab().end_ids) {
      can_end = can_end || has_bit(mask, id);
      clear_bit(mask, id);
    }
    const size_t count = count_bits(mask);
    const uint64_t bits = mix64(seed ^ mix64(out.ids.size() + 1));
    if (can_end && (count == 0 || bits % 4 == 0)) {
      matcher->accept(tokenizer.vocab().end_ids[0]);
      out.ended = true;
      return out;
    }
    if (count == 0) break;
    out.ids.push_back(nth_token(mask, bits / 4 % count));
    matcher->accept(out.ids.back());
  }
  return out;
}

// A token may come exactly where the text so far and its bytes begin a text of the grammar, and
// an end exactly where the text is whole.
void expect_exact_masks(const Tokenizer& tokenizer, const AnswerPlan& plan, uint64_t seed) {
  const auto grammar = grammar_of(plan);
  const auto trie = std::make_shared<const TokenTrie>(tokenizer, std::span<const TokenId>());
  const auto constraint = *make_grammar_constraint(grammar, trie);
  const auto automaton = std::make_shared<GrammarAutomaton>(grammar);
  walk(*constraint, tokenizer, seed, 40, [&](const std::vector<TokenId>& ids, const auto& mask) {
    GrammarPlace place(automaton);
    for (TokenId id : ids) ASSERT_TRUE(place.accept(tokenizer.token_bytes(id)));
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      bool want = false;
      if (tokenizer.is_end(id)) {
        want = place.can_end();
      } else if (!tokenizer.is_control(id) && !tokenizer.token_bytes(id).empty()) {
        GrammarPlace next = place;
        want = next.accept(tokenizer.token_bytes(id));
      }
      ASSERT_EQ(has_bit(mask, id), want) << id << " behind " << ids.size();
    }
  });
}

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer",
        "minimum":0,"maximum":130},"tags":{"type":"array","items":{"enum":["a","bc","d"]},"maxItems":3}},
        "required":["name","age"]})";

// Byte-level BPE, and SentencePiece's single bytes: tokens that are parts of characters are among
// them.
TEST(TokenMask, IsExactOnEveryToken) {
  Vocab tiny = tiny_vocab();
  tiny.end_ids = {tiny.eos};
  const auto byte_level = *Tokenizer::create(std::move(tiny));
  Vocab pieces = sentence_piece_vocab("llama");
  pieces.end_ids = {pieces.eos};
  const auto sentence_piece = *Tokenizer::create(std::move(pieces));
  const AnswerPlan plans[] = {plan_of(Kind::kJsonSchema, kPerson), plan_of(Kind::kJsonObject, ""),
                              plan_of(Kind::kRegex, "[a-d\xC3\xA9\xE2\x82\xAC]{1,4}( ab)*"),
                              plan_of(Kind::kGbnf, "root ::= \"ab\" root \"c\" | \"d\"?")};
  for (const AnswerPlan& plan : plans) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      expect_exact_masks(*byte_level, plan, seed);
      expect_exact_masks(*sentence_piece, plan, seed);
    }
  }
}

// What is proposed may come, token by token, and spells what a form leaves no choice about: no
// more, and no less than the tokenizer writes it with.
TEST(TokenMask, WhatIsForcedIsProposed) {
  Vocab pieces = sentence_piece_vocab("llama");
  pieces.end_ids = {pieces.eos};
  const auto sentence_piece = *Tokenizer::create(std::move(pieces));
  Vocab smol = smollm2_vocab();
  const auto byte_level = *Tokenizer::create(std::move(smol));
  for (const Tokenizer* tokenizer : {&*sentence_piece, &*byte_level}) {
    const auto trie = std::make_shared<const TokenTrie>(*tokenizer, std::span<const TokenId>());
    const auto constraint = *make_grammar_constraint(
        grammar_of(plan_of(Kind::kRegex, "(ab|cd) hello there! [x-z]?")), trie);
    const auto matcher = constraint->begin();
    std::vector<TokenId> tokens;
    matcher->propose(16, tokens);
    EXPECT_TRUE(tokens.empty());  // a or c
    const auto accept = [&](std::string_view text) {
      std::vector<TokenId> spelled;
      trie->spell(text, 16, spelled);
      for (const TokenId token : spelled) matcher->accept(token);
    };
    accept("c");
    matcher->propose(16, tokens);
    std::string text;
    for (const TokenId token : tokens) text += trie->spelling(token);
    EXPECT_EQ(text, "d hello there! ");
    std::vector<TokenId> first;
    matcher->propose(1, first);
    EXPECT_EQ(first, std::vector<TokenId>(tokens.begin(), tokens.begin() + 1));
    // Another goes its own way.
    const auto other = matcher->clone();
    std::vector<uint32_t> mask(static_cast<size_t>(token_mask_words(tokenizer->vocab_size())));
    for (const TokenId token : tokens) {
      other->fill_mask(mask, kManyTokens);
      EXPECT_TRUE(has_bit(mask, token)) << token;
      other->accept(token);
    }
    std::vector<TokenId> behind;
    other->propose(16, behind);
    EXPECT_TRUE(behind.empty());  // it may end
    matcher->propose(16, behind);
    EXPECT_EQ(behind, tokens);
  }
}

// Where text is free up to a mark, the mark may be a control token; others never come.
TEST(TokenMask, ControlTokensOnlyAsMarks) {
  Vocab vocab = tiny_vocab();
  vocab.end_ids = {vocab.eos};
  const auto tokenizer = *Tokenizer::create(std::move(vocab));
  std::vector<TokenId> controls;
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_control(id) && !tokenizer->is_end(id)) controls.push_back(id);
  }
  ASSERT_GE(controls.size(), 2u);
  const TokenId mark = controls[0];
  const TokenTrie trie(*tokenizer, std::span(&mark, 1));
  EXPECT_EQ(trie.spelling(mark), "\xFF" + tokenizer->token_bytes(mark));
  EXPECT_EQ(trie.spelling(controls[1]), "");
  EXPECT_EQ(trie.spelling(tokenizer->vocab().eos), "");
}

class SmolMask : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = Tokenizer::create(smollm2_vocab()).value().release();
    trie_ = new std::shared_ptr<const TokenTrie>(
        std::make_shared<const TokenTrie>(*tokenizer_, std::span<const TokenId>()));
  }
  static void TearDownTestSuite() {
    delete trie_;
    delete tokenizer_;
  }
  static std::shared_ptr<const TokenConstraint> constraint_of(const AnswerPlan& plan) {
    return make_grammar_constraint(grammar_of(plan), *trie_).value();
  }
  static const Tokenizer* tokenizer_;
  static std::shared_ptr<const TokenTrie>* trie_;
};
const Tokenizer* SmolMask::tokenizer_ = nullptr;
std::shared_ptr<const TokenTrie>* SmolMask::trie_ = nullptr;

constexpr const char* kSchemas[] = {
    kPerson,
    R"({"type":"object","properties":{"id":{"type":"integer","minimum":-5,"maximum":1234},
        "kind":{"enum":["x","y z",3,null,true]},"score":{"type":"number","minimum":0,"maximum":10},
        "note":{"anyOf":[{"type":"string","minLength":2,"maxLength":6},{"type":"null"}]}},
        "required":["id","kind","score"],"additionalProperties":false})",
    R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"boolean"},
        "kids":{"type":"array","maxItems":2,"items":{"$ref":"#/$defs/node"}}},"required":["v","kids"]}}})",
    R"({"type":"array","minItems":1,"maxItems":4,"prefixItems":[{"const":"head"},{"type":"integer"}],
        "items":{"type":["boolean","null"]}})",
    R"({"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{1,3}$"}},
        "required":["code"],"additionalProperties":{"type":"integer","exclusiveMinimum":7}})",
    R"({"allOf":[{"type":"object","properties":{"a":{"type":"number","exclusiveMinimum":-1,"exclusiveMaximum":2}},
        "required":["a"]},{"properties":{"b":{"type":"string","maxLength":3}}}]})",
    R"({"type":"object","required":["k"],"properties":{"k":{"type":["array","string"],"maxItems":2,
        "maxLength":4,"items":{"type":"object","additionalProperties":{"type":"null"}}}}})",
};

// Of what masks alone lead to, all that ends satisfies its schema.
TEST_F(SmolMask, DocumentsSatisfyTheirSchema) {
  size_t ended = 0;
  for (const char* text : kSchemas) {
    const AnswerPlan plan = plan_of(Kind::kJsonSchema, text);
    const auto constraint = constraint_of(plan);
    size_t ended_here = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      const Walk drawn = walk(*constraint, *tokenizer_, seed, 120, [](const auto&, const auto&) {});
      if (!drawn.ended) continue;
      ++ended_here;
      const std::string document = tokenizer_->decode(drawn.ids, true);
      const Result<Json> value = parse_json(document);
      ASSERT_TRUE(value.ok()) << document;
      EXPECT_TRUE(satisfies(*value, plan.words.schema, plan.words.schema)) << text << document;
    }
    EXPECT_GT(ended_here, 20u) << text;
    ended += ended_here;
  }
  EXPECT_GT(ended, 1000u);
}

// However few tokens there are, if they can be enough at all.
TEST_F(SmolMask, DocumentsAreEndedInTime) {
  for (const char* text : kSchemas) {
    const AnswerPlan plan = plan_of(Kind::kJsonSchema, text);
    const auto grammar = grammar_of(plan);
    const auto constraint = *make_grammar_constraint(grammar, *trie_);
    const size_t least = least_tokens(*grammar, **trie_)[grammar->start()];
    ASSERT_LT(least, 40u) << text;
    size_t ended = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      const size_t most = least + 1 + seed % 40;
      const Walk drawn = walk(
          *constraint, *tokenizer_, seed, most, [](const auto&, const auto&) {}, true);
      const Result<Json> value = parse_json(tokenizer_->decode(drawn.ids, true));
      ASSERT_TRUE(value.ok()) << text << tokenizer_->decode(drawn.ids, true);
      EXPECT_TRUE(satisfies(*value, plan.words.schema, plan.words.schema)) << text;
      ended += drawn.ended ? 1 : 0;
      // Without a token for its end a text is whole, too.
      const Walk whole = walk(
          *constraint, *tokenizer_, seed, least, [](const auto&, const auto&) {}, true);
      EXPECT_TRUE(parse_json(tokenizer_->decode(whole.ids, true)).ok()) << text;
    }
    EXPECT_GT(ended, 150u) << text;  // of 200: a number may take the end's place
    if (least < 2) continue;
    // Fewer are not enough: what may come is what may come without a bound.
    const auto matcher = constraint->begin();
    std::vector<uint32_t> bounded((static_cast<size_t>(tokenizer_->vocab_size()) + 31) / 32);
    std::vector<uint32_t> free = bounded;
    matcher->fill_mask(bounded, static_cast<int32_t>(least) - 1);
    matcher->fill_mask(free, kManyTokens);
    EXPECT_EQ(bounded, free);
  }
}

// A text that could end anywhere is cut by its bound, and says so; one that asks for no end in time
// may do all that it may do.
TEST_F(SmolMask, ProseIsNotEndedForWantOfTokens) {
  for (const bool in_time : {true, false}) {
    for (const char* pattern : {"[a-z ]*", "(ab[0-9]{3})*", "[a-z]*(-[0-9]{3})?"}) {
      SCOPED_TRACE(testing::Message() << pattern << in_time);
      const auto constraint =
          *make_grammar_constraint(grammar_of(plan_of(Kind::kRegex, pattern)), *trie_, in_time);
      const auto matcher = constraint->begin();
      std::vector<uint32_t> bounded((static_cast<size_t>(tokenizer_->vocab_size()) + 31) / 32);
      std::vector<uint32_t> free = bounded;
      matcher->fill_mask(free, kManyTokens);
      matcher->fill_mask(bounded, 40);
      EXPECT_EQ(bounded, free);
      matcher->fill_mask(bounded, 1);
      if (!in_time) {
        EXPECT_EQ(bounded, free);
      } else if (std::string_view(pattern) == "[a-z ]*") {
        EXPECT_EQ(bounded, free);
      } else {
        EXPECT_LT(count_bits(bounded), count_bits(free));
      }
    }
  }
}

// What is asked for without it may be cut in the midst.
TEST_F(SmolMask, DocumentsAreCutWhereNobodyAsksForTheirEnd) {
  const auto constraint = *make_grammar_constraint(
      grammar_of(
          plan_of(Kind::kJsonSchema, R"({"type":"array","minItems":4,"items":{"type":"string"}})")),
      *trie_, /*ends_in_time=*/false);
  size_t ended = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    ended += walk(
                 *constraint, *tokenizer_, seed, 20, [](const auto&, const auto&) {}, true)
                 .ended;
  }
  EXPECT_LT(ended, 25u);
}

// The fewest tokens that spell a text, whatever the rules between its bytes.
TEST_F(SmolMask, LeastTokensOfTextsAreThoseThatCoverThem) {
  const auto least_of = [&](const std::string& pattern) {
    const auto grammar = grammar_of(plan_of(Kind::kRegex, pattern));
    return least_tokens(*grammar, **trie_)[grammar->start()];
  };
  EXPECT_EQ(least_of("yes"), 1u);
  EXPECT_EQ(least_of("yesyes"), 2u);
  EXPECT_EQ(least_of("a?"), 0u);
  EXPECT_EQ(least_of("(yes|no|perhaps not)[0-9]{3}"), 4u);
  EXPECT_EQ(least_of("[^a]{5}x*"), 5u);
  EXPECT_EQ(least_of("((a|b){2}){100}"), 200u);
  const std::string words = "The number of articles that were ordered";
  EXPECT_LE(least_of(words), tokenizer_->encode(words)->size());
}

// Many readings at once, and lists that are long: no mask is too much work.
TEST_F(SmolMask, UnionsAndLongListsStayWithinTheirWork) {
  std::string late_tag, list;
  for (int i = 0; i < 20; ++i) {
    late_tag +=
        (i ? "," : "") +
        (R"({"type":"object","properties":{"thought":{"type":"string","maxLength":200},"arg":{"type":)"
         R"("integer"},"action":{"const":"act)" +
         std::to_string(i) + R"("}},"required":["thought","arg","action"]})");
  }
  for (int i = 0; i < 20'000; ++i) {
    list +=
        (i ? ",\"" : "\"") + std::to_string(mix64(static_cast<uint64_t>(i)) % 100'000'000) + "\"";
  }
  for (const std::string& schema :
       {"{\"anyOf\":[" + late_tag + "]}",
        R"({"type":"array","items":{"anyOf":[)" + late_tag + "]}}", "{\"enum\":[" + list + "]}"}) {
    const AnswerPlan plan = plan_of(Kind::kJsonSchema, schema);
    const auto constraint = constraint_of(plan);
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const Walk drawn = walk(*constraint, *tokenizer_, seed, 60, [](const auto&, const auto&) {});
      EXPECT_TRUE(drawn.ended || drawn.ids.size() == 60)
          << schema.substr(0, 80) << drawn.ids.size();
    }
  }
}

// The reader that judges documents is no rubber stamp.
TEST_F(SmolMask, TheJudgeSaysNo) {
  const std::pair<const char*, const char*> cases[] = {
      {kSchemas[0], R"({"name":"x"})"},
      {kSchemas[0], R"({"name":"x","age":131})"},
      {kSchemas[1], R"({"id":1,"kind":"q","score":1})"},
      {kSchemas[1], R"({"id":1,"kind":"x","score":1,"extra":1})"},
      {kSchemas[2], R"({"v":true,"kids":[{"v":1,"kids":[]}]})"},
      {kSchemas[3], R"(["head",1.5])"},
      {kSchemas[4], R"({"code":"ab-1"})"},
      {kSchemas[5], R"({"a":2})"},
  };
  for (const auto& [schema, document] : cases) {
    const Json root = *parse_json(schema);
    EXPECT_FALSE(satisfies(*parse_json(document), root, root)) << document;
  }
}

// Behind the end there are only ends, and behind what was not allowed there is nothing.
TEST_F(SmolMask, EndsAndDeadEnds) {
  const auto constraint = constraint_of(plan_of(Kind::kRegex, "yes"));
  const size_t words = (static_cast<size_t>(tokenizer_->vocab_size()) + 31) / 32;
  std::vector<uint32_t> mask(words + 2, ~0u);  // a model may have more rows than tokens
  const auto matcher = constraint->begin();
  for (TokenId id : *tokenizer_->encode("yes")) {
    EXPECT_FALSE(matcher->only_ends());
    matcher->accept(id);
  }
  EXPECT_TRUE(matcher->only_ends());
  matcher->fill_mask(mask, kManyTokens);
  const auto& ends = tokenizer_->vocab().end_ids;
  EXPECT_EQ(count_bits(mask), ends.size());
  matcher->accept(ends[0]);
  matcher->fill_mask(mask, kManyTokens);
  EXPECT_EQ(count_bits(mask), ends.size());
  const auto other = constraint->begin();
  other->accept(tokenizer_->encode("no")->at(0));
  other->fill_mask(mask, kManyTokens);
  EXPECT_EQ(count_bits(mask), 0u);
  EXPECT_FALSE(other->only_ends());
}

// A matcher that reads the tokens of another, as after a preemption, is where the other is.
TEST_F(SmolMask, AMatcherIsMadeAnewFromTokens) {
  const auto constraint = constraint_of(plan_of(Kind::kJsonSchema, kSchemas[1]));
  std::vector<uint32_t> again((static_cast<size_t>(tokenizer_->vocab_size()) + 31) / 32);
  walk(*constraint, *tokenizer_, 5, 40, [&](const std::vector<TokenId>& ids, const auto& mask) {
    const auto matcher = constraint->begin();
    for (TokenId id : ids) matcher->accept(id);
    matcher->fill_mask(again, kManyTokens);
    ASSERT_EQ(again, mask);
  });
}

}  // namespace
}  // namespace headrace::token_mask_test
