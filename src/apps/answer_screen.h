// An answer on its way to a person: rendered where styles are shown, as it is elsewhere.
#pragma once

#include <string>

#include "apps/chat_backend.h"
#include "terminal/markdown_renderer.h"

namespace headrace {

class AnswerScreen {
 public:
  enum class Look { kRendered, kPlain };

  explicit AnswerScreen(Look look, int columns = 80);

  // What is to be written for what came. Plain: thoughts stand between <think> and </think>.
  std::string show(const ChatDelta& delta);
  std::string finish();
  void set_columns(int columns);

 private:
  std::string change_to(bool thought);

  const Look look_;
  MarkdownRenderer thoughts_, text_;
  bool in_thought_ = false;
  bool line_open_ = false;  // plain: what was written last does not end a line
};

}  // namespace headrace
