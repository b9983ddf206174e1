#include "text/rwkv_vocab.h"

#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace headrace::rwkv_vocab_test {
namespace {

// Lines as the published file has them.
constexpr std::string_view kLines =
    "1 '\\x00' 1\n"
    "33 ' ' 1\n"
    "40 \"'\" 1\n"
    "66 'A' 1\n"
    "98 'a' 1\n"
    "99 'b' 1\n"
    "195 b'\\xc2' 1\n"
    "196 b'\\xc3' 1\n"
    "261 '\\n\\n' 2\n"
    "262 '\\\\\\'' 2\n"
    "300 'ab' 2\n"
    "301 'abab' 4\n"
    "302 '\\x85' 2\n"
    "303 '\\u2002' 3\n"
    "304 b'\\xe4\\xbd' 2\n"
    "305 'é' 2\n";

std::unique_ptr<Tokenizer> world_tokenizer() {
  auto vocab = rwkv_world_vocab(kLines);
  EXPECT_TRUE(vocab.ok()) << vocab.status().message();
  return Tokenizer::create(std::move(vocab).value()).value();
}

TEST(RwkvVocab, LinesAreLiteralsOfBytesAndOfCharacters) {
  const auto tokenizer = world_tokenizer();
  EXPECT_EQ(tokenizer->token_bytes(1), std::string(1, '\0'));
  EXPECT_EQ(tokenizer->token_bytes(40), "'");
  EXPECT_EQ(tokenizer->token_bytes(195), "\xc2");
  EXPECT_EQ(tokenizer->token_bytes(262), "\\'");
  EXPECT_EQ(tokenizer->token_bytes(302), "\xc2\x85");  // U+0085
  EXPECT_EQ(tokenizer->token_bytes(303), "\u2002");
  EXPECT_EQ(tokenizer->token_bytes(304), "\xe4\xbd");
  EXPECT_EQ(tokenizer->token_bytes(200), "");
  EXPECT_TRUE(tokenizer->is_end(0) && tokenizer->is_control(0));
}

// The longest at each place, not the most text by the fewest.
TEST(RwkvVocab, TheLongestTokenIsTaken) {
  const auto tokenizer = world_tokenizer();
  const auto ids = [&](std::string_view text) { return tokenizer->encode(text).value(); };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids("abab"), (Ids{301}));
  EXPECT_EQ(ids("ababa"), (Ids{301, 98}));
  EXPECT_EQ(ids("aab"), (Ids{98, 300}));
  EXPECT_EQ(ids("aba b\n\n"), (Ids{300, 98, 33, 99, 261}));
  EXPECT_EQ(ids("\u00e9\u00c9"), (Ids{305, 196}));  // of É no second byte
  EXPECT_TRUE(tokenizer->has_byte('A'));
  EXPECT_FALSE(tokenizer->has_byte('z'));
  EXPECT_EQ(tokenizer->decode(ids("abab a'"), false), "abab a'");
}

TEST(RwkvVocab, GgufTokensAreEscaped) {
  Vocab vocab;
  vocab.model = "rwkv";
  vocab.tokens = {"<s>", "\\n\\n", "\\xff", "\\\\", "plain", "\\xzz"};
  vocab.kinds.assign(6, TokenKind::kNormal);
  vocab.kinds[0] = TokenKind::kControl;
  unescape_rwkv_tokens(vocab);
  EXPECT_EQ(vocab.tokens[1], "\n\n");
  EXPECT_EQ(vocab.tokens[2], "\xff");
  EXPECT_EQ(vocab.tokens[3], "\\");
  EXPECT_EQ(vocab.tokens[4], "plain");
  EXPECT_EQ(vocab.tokens[5], "\\xzz");
  const auto tokenizer = Tokenizer::create(std::move(vocab)).value();
  EXPECT_EQ(tokenizer->encode("plain\n\n").value(), (std::vector<TokenId>{4, 1}));
}

TEST(RwkvVocab, ABadLineIsNamed) {
  for (const char* line : {"2 'a'\n", "x 'a' 1\n", "2 'a' 2\n", "2 a 1\n", "2 '\\xg0' 1\n",
                           "2 '' 0\n", "0 'a' 1\n", "2 '\\u00' 1\n", "99999999 'a' 1\n"}) {
    const auto vocab = rwkv_world_vocab(std::string("1 'a' 1\n") + line);
    ASSERT_FALSE(vocab.ok()) << line;
    EXPECT_EQ(vocab.status().message(), "line 2: is no token behind the one before") << line;
  }
}

}  // namespace
}  // namespace headrace::rwkv_vocab_test
