// GBNF, llama.cpp's notation of grammars, and what XGrammar's EBNF has in common with it:
//
//   root  ::= "a" item* [^\n]{2,3} | other   # comment
//
// Literals in quotes of either kind, classes, `.`, groups, * + ? {m} {m,} {m,n}; a rule goes on in
// the next line behind | and inside of parentheses. The rule `root` is the whole text.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/grammar.h"

namespace headrace {

// kInvalidArgument naming the line; kUnsupported for names of tokens (<[12]>).
Result<GrammarPiece> gbnf_grammar(GrammarBuilder& builder, std::string_view text);

}  // namespace headrace
