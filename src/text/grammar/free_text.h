// Text without a form, up to where a form begins.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace headrace {

// A mark of a dialect: as text, or as the control token that is spelled so.
GrammarPiece mark_grammar(GrammarBuilder& builder, std::string_view mark);

// Exactly this text, in which each of the dialect's marks, and a mark within a mark, may come as
// its control token.
GrammarPiece spelled_grammar(GrammarBuilder& builder, std::string_view text,
                             std::span<const std::string_view> marks);

// What may end a free text, and what then follows.
struct TextMark {
  std::string_view text;
  GrammarPiece then;
  bool never = false;  // instead: the text does not hold it
};

struct FreeText {
  std::vector<TextMark> ends;  // REQUIRES: none is empty, none holds another
  // All marks of the dialect, for what stands as control tokens within `ends`.
  std::span<const std::string_view> marks = {};
  std::vector<std::string_view> passed;  // of which these control tokens may stand in the text
  bool may_end = false;                  // it may have none of `ends`
  // A text that begins with this character behind white space goes on with `behind_bare` instead.
  char bare_open = 0;
  GrammarPiece behind_bare;
};

// Any text up to the first of the marks that end it, by an automaton of what the text ends with
// (Aho and Corasick 1975).
void add_free_text(GrammarBuilder& builder, const GrammarPiece& rule, const FreeText& text);

// Any text up to the first `mark`, and `then`. `may_end`: or any text without it.
// REQUIRES: the mark is not empty
void add_text_until(GrammarBuilder& builder, const GrammarPiece& rule, std::string_view mark,
                    const GrammarPiece& then, bool may_end);

}  // namespace headrace
