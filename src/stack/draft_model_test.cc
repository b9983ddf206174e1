#include "stack/draft_model.h"

#include <gtest/gtest.h>

namespace headrace::draft_model_test {
namespace {

Vocab vocab(std::vector<std::string_view> tokens, size_t unused = 0) {
  Vocab vocab{.tokens = std::move(tokens)};
  vocab.kinds.assign(vocab.tokens.size(), TokenKind::kNormal);
  for (size_t i = 0; i < unused; ++i) vocab.kinds[vocab.kinds.size() - 1 - i] = TokenKind::kUnused;
  return vocab;
}

TEST(DraftModel, TokensAreTheSameButForPadding) {
  const Vocab model = vocab({"a", "b", "c", "[PAD3]", "[PAD4]"}, 2);
  EXPECT_TRUE(check_same_tokens(model, model).ok());
  EXPECT_TRUE(check_same_tokens(model, vocab({"a", "b", "c"})).ok());
  EXPECT_TRUE(check_same_tokens(vocab({"a", "b", "c"}), model).ok());
  EXPECT_TRUE(check_same_tokens(model, vocab({"a", "b", "c", "[x]"}, 1)).ok());
}

TEST(DraftModel, TheFirstTokenThatDiffersIsNamed) {
  const Vocab model = vocab({"a", "b", "c"});
  const auto message = [&](const Vocab& draft) {
    return std::string(check_same_tokens(model, draft).message());
  };
  EXPECT_TRUE(message(vocab({"a", "x", "y"})).starts_with("token 1 is 'x', and 'b' in the model"));
  EXPECT_TRUE(message(vocab({"a", "b"})).starts_with("token 2 'c' is only in the model"));
  EXPECT_TRUE(message(vocab({"a", "b", "c", "d"})).starts_with("token 3 'd' is its alone"));
}

}  // namespace
}  // namespace headrace::draft_model_test
