// Markdown of a model's answer as rows of a terminal, while it comes. What was told is never told
// otherwise: what a character means is told when it is certain, and that depends on the text alone,
// not on how it was cut. So nothing flickers, and a pipe could keep what is shown.
//
// Each line of the text is a line of its own, as models write them. Headings, lists, quotes, rules,
// fenced code with colours, tables (their columns are as wide as the first rows need), emphasis,
// code, links. Anything else is text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/block_start.h"
#include "terminal/code_highlighter.h"
#include "terminal/inline_markdown.h"
#include "terminal/line_wrapper.h"
#include "terminal/safe_text.h"
#include "terminal/style.h"
#include "terminal/table_layout.h"

namespace headrace {

class MarkdownRenderer {
 public:
  // `columns` of the terminal. `base`: of text without marks.
  explicit MarkdownRenderer(int columns, Style base = {});
  ~MarkdownRenderer();

  // For rows that are not full yet.
  void set_columns(int columns);
  // Appends what `text` makes certain. Bytes that are not UTF-8 and characters that a terminal
  // obeys do not reach `out`.
  void push(std::string_view text, StyledTexts& out);
  // The text ends; the last row is ended, too.
  void finish(StyledTexts& out);

 private:
  struct Table;

  // Of the line that comes.
  enum class Line : uint8_t {
    kHeld,  // line_ may still be the beginning of any block, or the end of code
    kText,  // goes to inline_
    kCode,  // goes to code_
  };

  void push_character(std::string_view character, StyledTexts& out);
  void end_line(StyledTexts& out);
  void end_held_line(StyledTexts& out);
  void begin_block(StyledTexts& out);

  void begin_text(const BlockStart& start, StyledTexts& out);
  void push_text(std::string_view characters, StyledTexts& out);
  void end_text(StyledTexts& out);
  void tell_rule(std::string_view label, StyledTexts& out);

  void begin_code(const BlockStart& start, StyledTexts& out);
  void push_code_line(std::string_view character, StyledTexts& out);
  void push_code(std::string_view characters, StyledTexts& out);
  void end_code(StyledTexts& out);

  void end_table_row(StyledTexts& out);
  void end_table(StyledTexts& out);
  void lay_out_table(StyledTexts& out);
  void tell_as_text(const std::string& line, StyledTexts& out);

  const Style base_;
  SafeText safe_;
  LineWrapper wrapper_;
  Line state_ = Line::kHeld;
  std::string line_;  // held back
  InlineMarkdown inline_;
  bool blank_ = false;  // an empty line is due before what comes next
  bool began_ = false;  // something was told

  BlockStart fence_;                       // of the code that is open
  std::unique_ptr<CodeHighlighter> code_;  // none: no code is open
  int code_column_ = 0;

  std::unique_ptr<Table> table_;  // whose rows come
};

}  // namespace headrace
