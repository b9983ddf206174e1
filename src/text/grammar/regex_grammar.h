// Regular expressions as grammars: what Python, JavaScript and JSON schema have in common.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.h"
#include "text/grammar/grammar.h"

namespace headrace {

// How one character of a set is written where the expression's text stands.
using WriteCharacter = std::function<GrammarPiece(const CodePointSet&)>;

// The whole text matches: ^ at the beginning and $ at the end say nothing. Characters, `.`,
// classes, \d \w \s (ASCII's, as JavaScript has them), groups, alternatives, quantifiers.
// kInvalidArgument naming the place for what is ill-formed, kUnsupported for what no automaton can
// do or what is not there: references, looking around, boundaries, properties, flags.
Result<GrammarPiece> regex_grammar(GrammarBuilder& builder, std::string_view pattern,
                                   const WriteCharacter& write);
// In UTF-8.
Result<GrammarPiece> regex_grammar(GrammarBuilder& builder, std::string_view pattern);

}  // namespace headrace
