// Text without a form, up to where a form begins.
#pragma once

#include <span>
#include <string_view>

#include "text/grammar/grammar.h"

namespace headrace {

// A mark of a dialect: as text, or as the control token that is spelled so.
GrammarPiece mark_grammar(GrammarBuilder& builder, std::string_view mark);

// Any text up to the first `mark`, and `then`. `may_end`: or any text without it.
// REQUIRES: the mark is not empty
void add_text_until(GrammarBuilder& builder, const GrammarPiece& rule, std::string_view mark,
                    const GrammarPiece& then, bool may_end);

}  // namespace headrace
