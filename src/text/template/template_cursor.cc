#include "text/template/template_cursor.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/template/template_error.h"

namespace headrace {

TokenCursor::Nest::Nest(TokenCursor& cursor) : cursor_(cursor) {
  if (cursor_.depth_ >= cursor_.depth_max_) cursor_.fail_depth();
  ++cursor_.depth_;
}

const TemplateToken& TokenCursor::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const TemplateToken& TokenCursor::take() {
  const TemplateToken& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenCursor::is_operator(std::string_view text, size_t ahead) const {
  return peek(ahead).kind == Kind::kOperator && peek(ahead).text == text;
}

bool TokenCursor::is_name(std::string_view text, size_t ahead) const {
  return peek(ahead).kind == Kind::kName && peek(ahead).text == text;
}

void TokenCursor::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail(fmt::format("expected '{}', found {}", text, describe()));
}

void TokenCursor::expect_name(std::string_view text) {
  if (!take_name(text)) fail(fmt::format("expected '{}', found {}", text, describe()));
}

void TokenCursor::expect_block_end() {
  if (!at(Kind::kBlockEnd)) fail(fmt::format("expected '%}}', found {}", describe()));
  take();
}

void TokenCursor::expect_variable_end() {
  if (!at(Kind::kVariableEnd)) fail(fmt::format("expected '}}}}', found {}", describe()));
  take();
}

std::string TokenCursor::expect_identifier() {
  if (!at(Kind::kName)) fail(fmt::format("expected a name, found {}", describe()));
  return take().text;
}

std::string TokenCursor::describe() const {
  switch (peek().kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kString:
      return "a string";
    case Kind::kInteger:
    case Kind::kFloat:
      return "a number";
    default:
      return fmt::format("'{}'", peek().text.substr(0, 40));
  }
}

void TokenCursor::fail(std::string message) const {
  template_error(peek().line, std::move(message));
}

void TokenCursor::fail_depth() const {
  template_error(peek().line, fmt::format("nested more than {} levels deep", depth_max_),
                 StatusCode::kExhausted);
}

}  // namespace headrace
