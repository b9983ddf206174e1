#include "apps/answer_screen.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr Style kThoughtStyle{.dim = true};
constexpr std::string_view kThinkBegin = "<think>\n", kThinkEnd = "\n</think>\n\n";

}  // namespace

AnswerScreen::AnswerScreen(Look look, int columns)
    : look_(look), thoughts_(columns, kThoughtStyle), text_(columns) {}

void AnswerScreen::set_columns(int columns) {
  thoughts_.set_columns(columns);
  text_.set_columns(columns);
}

std::string AnswerScreen::show(const ChatDelta& delta) {
  std::string out = delta.thought == in_thought_ ? "" : change_to(delta.thought);
  if (look_ == Look::kPlain) {
    out += delta.text;
    if (!delta.text.empty()) line_open_ = delta.text.back() != '\n';
    return out;
  }
  StyledTexts texts;
  (delta.thought ? thoughts_ : text_).push(delta.text, texts);
  return out + ansi_text(texts);
}

std::string AnswerScreen::finish() {
  if (look_ == Look::kPlain) {
    const std::string out = in_thought_ ? std::string(kThinkEnd) : line_open_ ? "\n" : "";
    in_thought_ = line_open_ = false;
    return out;
  }
  StyledTexts texts;
  (in_thought_ ? thoughts_ : text_).finish(texts);
  in_thought_ = false;
  return ansi_text(texts);
}

std::string AnswerScreen::change_to(bool thought) {
  in_thought_ = thought;
  if (look_ == Look::kPlain) return std::string(thought ? kThinkBegin : kThinkEnd);
  StyledTexts texts;
  (thought ? text_ : thoughts_).finish(texts);
  append_styled(texts, texts.empty() ? "" : "\n", {});
  return ansi_text(texts);
}

}  // namespace headrace
