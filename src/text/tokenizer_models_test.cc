// The models behind tokenizers against their definitions, and their speed on hostile texts.
#include <malloc.h>

#include <ctime>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/unigram.h"
#include "text/vocab_fixture.h"

namespace headrace::tokenizer_models_test {
namespace {

std::string random_word(Rng& rng, size_t length_max, std::string_view letters) {
  std::string word;
  const size_t length = 1 + rng.below(length_max);
  for (size_t i = 0; i < length; ++i) word.push_back(letters[rng.below(letters.size())]);
  return word;
}

TEST(ScoreBpe, EqualsTheDefinition) {
  const Vocab vocab = sentence_piece_vocab("llama");
  const auto tokenizer = *Tokenizer::create(vocab);
  const TokenTable table(vocab.tokens);
  // Joins the best pair until there is none, looking at all pairs each time.
  const auto slowly = [&](const std::string& word) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    while (true) {
      double best = -1e30;
      size_t at = parts.size();
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const int id = table.find(parts[i] + parts[i + 1]);
        if (id >= 0 && vocab.scores[static_cast<size_t>(id)] > best) {
          best = vocab.scores[static_cast<size_t>(id)], at = i;
        }
      }
      if (at == parts.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& part : parts) ids.push_back(table.find(part));
    return ids;
  };
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    const std::string word = random_word(rng, round % 2 ? 70 : 9, "abcd");
    EXPECT_EQ(*tokenizer->encode(word, {.add_special = false}), slowly(word)) << word;
  }
}

TEST(ScoreBpe, SpacesBytesAndUnknownCharacters) {
  Vocab vocab = sentence_piece_vocab("llama");
  const auto plain = *Tokenizer::create(vocab);
  const auto pieces = [](const Tokenizer& tokenizer, std::string_view text) {
    std::vector<std::string_view> result;
    const std::vector<TokenId> ids = *tokenizer.encode(text, {.add_special = false});
    for (const TokenId id : ids) {
      result.push_back(tokenizer.vocab().tokens[static_cast<size_t>(id)]);
    }
    return result;
  };
  using Pieces = std::vector<std::string_view>;
  EXPECT_EQ(pieces(*plain, "ab  cd"), (Pieces{"ab", "\u2581", "\u2581", "cd"}));
  EXPECT_EQ(pieces(*plain, "\u00e9\xff"), (Pieces{"<0xC3>", "<0xA9>", "<0xFF>"}));
  EXPECT_EQ(plain->decode(*plain->encode("a\u00e9 \xff\u2581"), true), "a\u00e9 \xff ");
  vocab.add_space_prefix = true;
  const auto prefixed = *Tokenizer::create(vocab);
  EXPECT_EQ(pieces(*prefixed,
                   "ab<tool> \xff"
                   "ab"),
            (Pieces{"\u2581", "ab", "<tool>", "\u2581", "\u2581", "<0xFF>", "ab"}));
  EXPECT_EQ(prefixed->decode(*prefixed->encode("  a\xff"
                                               "b"),
                             true),
            "  a\xff"
            "b");
  for (TokenKind& kind : vocab.kinds) {
    if (kind == TokenKind::kByte) kind = TokenKind::kUnused;
  }
  const auto unknown = *Tokenizer::create(vocab);
  EXPECT_EQ(pieces(*unknown, "a\u00e9\u4f60"), (Pieces{"\u2581", "a", "<unk>", "<unk>"}));
}

TEST(Unigram, EqualsTheDefinition) {
  const Vocab vocab = sentence_piece_vocab("t5");
  const auto tokenizer = *Tokenizer::create(vocab);
  const TokenTable table(vocab.tokens);
  // The best total over all cuts, by trying each of them.
  const auto best_total = [&](const std::string& word) {
    double best = -1e30;
    for (uint32_t cuts = 0; cuts < 1u << (word.size() - 1); ++cuts) {
      double total = 0;
      size_t begin = 0;
      for (size_t end = 1; end <= word.size() && total > -1e20; ++end) {
        if (end < word.size() && !(cuts >> (end - 1) & 1)) continue;
        const int id = table.find(word.substr(begin, end - begin));
        total += id < 0 ? -1e30 : vocab.scores[static_cast<size_t>(id)];
        begin = end;
      }
      best = std::max(best, total);
    }
    return best;
  };
  Rng rng(4);
  for (int round = 0; round < 300; ++round) {
    const std::string word = random_word(rng, 12, "abcd");
    double total = 0;
    std::string text;
    const std::vector<TokenId> ids = *tokenizer->encode(word, {.add_special = false});
    for (const TokenId id : ids) {
      total += vocab.scores[static_cast<size_t>(id)];
      text += vocab.tokens[static_cast<size_t>(id)];
    }
    EXPECT_EQ(text, word);
    EXPECT_NEAR(total, best_total(word), 1e-6) << word;
  }
}

TEST(Unigram, SpacesAsTheFileSays) {
  Vocab vocab = sentence_piece_vocab("t5");
  vocab.add_space_prefix = true;
  vocab.remove_extra_spaces = true;
  vocab.add_eos = true;
  const auto tokenizer = *Tokenizer::create(vocab);
  const auto ids = *tokenizer->encode("  ab   cd ");
  EXPECT_EQ(ids, *tokenizer->encode("ab cd"));
  EXPECT_EQ(ids.back(), vocab.eos);
  EXPECT_EQ(tokenizer->decode(ids, true), "ab cd");
}

TEST(TokenizerRecipe, PrefixOnlyInFrontOfTheWholeText) {
  const std::string file = family_file("mistral.json");  // prepend_scheme "first"
  const auto tokenizer = *Tokenizer::create(*vocab_from_tokenizer_json({.tokenizer = file}));
  const auto whole = *tokenizer->encode("the", {.add_special = false});
  const auto behind = *tokenizer->encode("the", {.add_special = false, .behind_token = true});
  EXPECT_EQ(tokenizer->token_bytes(whole[0])[0], ' ');
  EXPECT_EQ(tokenizer->token_bytes(behind[0])[0], 't');
  EXPECT_EQ(tokenizer->decode(whole, true), "the");
}

TEST(Unigram, UnknownCharactersAreFused) {
  Vocab vocab = sentence_piece_vocab("t5");
  for (TokenKind& kind : vocab.kinds) {
    if (kind == TokenKind::kByte) kind = TokenKind::kUnused;
  }
  const auto tokenizer = *Tokenizer::create(vocab);
  const auto ids = *tokenizer->encode(
      "a\u4f60\u597d\u4f60"
      "b\u4f60",
      {.add_special = false});
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(ids[1], vocab.unk);
  EXPECT_EQ(ids[3], vocab.unk);
}

// CPU time of this thread: other work on the machine does not count.
double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  const double begin = cpu_seconds();
  EXPECT_TRUE(tokenizer.encode(text).ok());
  return cpu_seconds() - begin;
}

// Memory that was freed stays with the process: else the kernel's clearing of pages, which begins
// at some size, is timed beside our own work.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

// The time for 4n bytes is at most 2.5 * 2.5 times that for n, for texts that are hard on joining:
// a method that is quadratic takes 16 times. Two doublings, because one of them can be the one at
// which a text's symbols outgrow a level of the caches.
void expect_linear(const Tokenizer& tokenizer, const std::string& name) {
  for (const std::string unit : {"a", " ", "\n", "\xff", "ab ", "\u4f60", "\u0301\u0316", "<t"}) {
    std::string small;
    while (small.size() < (1u << 16)) small += unit;
    const std::string large = small + small + small + small;
    double best_small = 1e9, best_large = 1e9;
    for (int turn = 0; turn < 12; ++turn) {
      best_small = std::min(best_small, seconds_to_encode(tokenizer, small));
      best_large = std::min(best_large, seconds_to_encode(tokenizer, large));
      if (turn >= 1 && best_large / best_small <= 5.5) break;
    }
    EXPECT_LE(best_large / best_small, 6.25) << name << " '" << unit << "'";
    EXPECT_LT(best_large, 5.0) << name << " '" << unit << "'";
  }
}

TEST(TokenizerSpeed, LinearForEachModel) {
  keep_freed_memory();
  expect_linear(*Tokenizer::create(sentence_piece_vocab("llama")).value(), "llama");
  expect_linear(*Tokenizer::create(sentence_piece_vocab("t5")).value(), "t5");
}

TEST(TokenizerSpeed, LinearForTokenizerJson) {
  keep_freed_memory();
  for (const std::string name : {"albert", "deepseek_v3", "gemma", "o200k", "t5"}) {
    const std::string file = family_file(name + ".json");
    Vocab vocab = *vocab_from_tokenizer_json({.tokenizer = file});
    expect_linear(*Tokenizer::create(std::move(vocab)).value(), name);
  }
}

TEST(TokenizerSpeed, EightMebibytesOfOneCharacter) {
  for (const char* model : {"llama", "t5"}) {
    const auto tokenizer = *Tokenizer::create(sentence_piece_vocab(model));
    for (const char c : {'a', ' '}) {
      const std::string text(8u << 20, c);
      const double begin = cpu_seconds();
      const auto ids = tokenizer->encode(text, {.add_special = false});
      std::printf("%s, 8 MiB of '%c': %.2f s\n", model, c, cpu_seconds() - begin);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(tokenizer->decode(*ids, false), text);
    }
  }
}

}  // namespace
}  // namespace headrace::tokenizer_models_test
