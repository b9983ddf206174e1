// A grammar as what an engine may sample: bytes become tokens.
#pragma once

#include <memory>

#include "base/status.h"
#include "base/token_constraint.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace headrace {

// `ends_in_time`: where the tokens that an answer has left are just enough to end a text, only such
// come as leave enough, so that it is whole however early its tokens are used up.
// Works out the first tokens, so that a grammar which asks for too much is found here.
// kInvalidArgument: that, or no token of the vocabulary begins a text of it.
Result<std::shared_ptr<const TokenConstraint>> make_grammar_constraint(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
    bool ends_in_time = true);

}  // namespace headrace
