// The spans of one line of markdown (emphasis, code, links), as its characters come. What may still
// become a mark is held back until that is known, at most until the line's end, so that nothing
// that was told is ever told otherwise.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/style.h"

namespace headrace {

class InlineMarkdown {
 public:
  // Characters with their style.
  using Tell = std::function<void(std::string_view text, const Style& style)>;

  // `base`: of text without marks.
  explicit InlineMarkdown(Style base = {}) : base_(base) {}

  void push(std::string_view characters, const Tell& tell);
  // The line ends: marks that were not closed are text.
  void finish(const Tell& tell);

 private:
  struct Open {
    std::string mark;
    Style style;
  };
  enum class Held { kTold, kNeedsMore };

  void tell_known(bool last, const Tell& tell);
  Held take_front(bool last, const Tell& tell);
  void tell_text(size_t bytes, const Style& style, const Tell& tell);
  Held take_emphasis(bool last, const Tell& tell);
  Held take_code(bool last, const Tell& tell);
  Held take_link(bool last, const Tell& tell);
  Held take_address(bool last, const Tell& tell);
  Held take_escape(bool last, const Tell& tell);
  bool close_open(size_t run);
  Style style() const;

  Style base_;
  std::string held_;
  char previous_ = ' ';     // the byte before held_
  std::vector<Open> open_;  // emphasis that was longer than is held back
};

// All of a line at once.
StyledTexts inline_markdown(std::string_view line, Style base = {});

}  // namespace headrace
