// Colours of a program's text as it comes: comments, strings, numbers, keywords, calls. It knows of
// a language what a row of a table says, and no grammar.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "terminal/style.h"

namespace headrace {

struct CodeLanguage;

class CodeHighlighter {
 public:
  using Tell = std::function<void(std::string_view text, const Style& style)>;

  // `name`: what stands behind the fence ("python"); unknown names have no colours.
  explicit CodeHighlighter(std::string_view name);

  // A character of the text, or a line's end. Only words and what may begin a comment are held
  // back.
  void push(std::string_view character, const Tell& tell);
  void finish(const Tell& tell);

 private:
  enum class State { kCode, kWord, kLineComment, kBlockComment, kString };

  void push_code(std::string_view character, const Tell& tell);
  void push_mark(const Tell& tell);
  void push_block_comment(std::string_view character, const Tell& tell);
  void push_string(std::string_view character, const Tell& tell);
  void push_change(std::string_view character, const Tell& tell);
  void end_line(const Tell& tell);
  void tell_word(char next, const Tell& tell);
  void tell_held(const Style& style, const Tell& tell);

  const CodeLanguage* const language_;  // nullptr: no colours
  State state_ = State::kCode;
  std::string held_;      // a word, or what may begin a comment
  std::string quote_;     // that ends the string
  std::string tail_;      // of a comment or string, as long as what ends it
  char empty_quote_ = 0;  // of "", which a third quote makes the beginning of a long string
  bool escaped_ = false;  // the next character of the string is no end
  bool line_begins_ = true;
  Style line_style_;  // of a line of changes
};

}  // namespace headrace
