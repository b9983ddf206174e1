// Which tokens an answer may have, whatever its form: some of them only, and no text of a list.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/token_constraint.h"
#include "text/tokenizer.h"

namespace headrace {

// No tokens but these. An answer ends where an end is among them, or by its length.
// REQUIRES: 0 <= id for all of them, at least one
std::shared_ptr<const TokenConstraint> allow_tokens(std::vector<TokenId> allowed,
                                                    const Tokenizer& tokenizer);

// No token that completes one of these sequences within an answer. REQUIRES: none is empty
std::shared_ptr<const TokenConstraint> ban_sequences(std::vector<std::vector<TokenId>> banned);

// How a tokenizer writes each of these words at the begin of a text and, where that is a token of
// its own, behind a space: the sequences that vLLM bans for bad_words. kInvalidArgument: a word of
// which the vocabulary has no token.
Result<std::vector<std::vector<TokenId>>> sequences_of_words(const Tokenizer& tokenizer,
                                                             std::span<const std::string> words);

// All of these at once. Where together they leave no token, the later of them give way.
// REQUIRES: at least one, none is null
std::shared_ptr<const TokenConstraint> join_constraints(
    std::vector<std::shared_ptr<const TokenConstraint>> parts);

}  // namespace headrace
