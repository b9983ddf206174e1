// How few tokens can end a text of a grammar, from each place in its rules: what an answer with a
// form needs at least, so that it can be ended in time.
#pragma once

#include <cstdint>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace headrace {

// Of what no tokens of the vocabulary can end. Sums of two and more of it do not overflow.
inline constexpr uint32_t kNeverEnds = uint32_t{1} << 30;

// [positions of the grammar]: the tokens from there to the end of that alternative of the rule, at
// least, where no token reaches beyond a rule. So from every place with n < kNeverEnds tokens to
// the end, n > 0, one of them leads to a place with n - 1 at most (Knuth 1977, of words of one
// token; what is spelt out is covered by the longest tokens that fit).
std::vector<uint32_t> least_tokens(const Grammar& grammar, const TokenTrie& trie);

}  // namespace headrace
