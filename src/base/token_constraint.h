// Which tokens an answer may have: the seam between whoever knows a form (text/grammar) and whoever
// samples (engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace headrace {

// Words of a mask: bit t % 32 of word t / 32 says whether token t may come.
constexpr int64_t token_mask_words(int64_t vocabulary) { return (vocabulary + 31) / 32; }

// Of an answer that may go on for as long as it likes.
inline constexpr int32_t kManyTokens = INT32_MAX;

// Where one choice is in the form that its request asks for. One thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // Writes which tokens may come next, [token_mask_words(V)]. All bits are 0 where none may, which
  // is an error of the answer. `tokens_left`: of the answer, the next among them, at least 1: a
  // form that could just be ended with them allows what ends it in time.
  virtual void fill_mask(std::span<uint32_t> allowed, int32_t tokens_left) = 0;
  // Whether only tokens that end the answer may come next.
  virtual bool only_ends() = 0;
  // The choice's next token, which need not have been allowed: then none is from here on.
  virtual void accept(TokenId token) = 0;

  // Appends at most `most` allowed tokens, one behind the other, that spell what the form leaves no
  // choice about. Others may spell the same: they are proposals.
  virtual void propose(size_t /*most*/, std::vector<TokenId>& /*tokens*/) {}
  // The same place, to go on from by itself. Null: of a matcher that proposes nothing.
  virtual std::unique_ptr<TokenMatcher> clone() const { return nullptr; }
};

// The form of all choices of a request, and of other requests. Any thread.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  virtual std::unique_ptr<TokenMatcher> begin() const = 0;
  // Memory that it holds by now and that grows as answers are made, about.
  virtual size_t bytes() const { return 0; }
};

}  // namespace headrace
