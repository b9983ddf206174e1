// The place of a parser in a template's tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/template_lexer.h"

namespace headrace {

class TokenCursor {
 public:
  using Kind = TemplateToken::Kind;

  // `depth_max`: of nested Nest objects, and of expressions.
  TokenCursor(std::vector<TemplateToken> tokens, int depth_max)
      : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  // Counts one level of nesting while it lives; fails beyond the limit.
  class Nest {
   public:
    explicit Nest(TokenCursor& cursor);
    ~Nest() { --cursor_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    TokenCursor& cursor_;
  };

  const TemplateToken& peek(size_t ahead = 0) const;  // the end, beyond it
  const TemplateToken& take();
  bool at(Kind kind) const { return peek().kind == kind; }
  bool is_operator(std::string_view text, size_t ahead = 0) const;
  bool is_name(std::string_view text, size_t ahead = 0) const;
  bool take_operator(std::string_view text) { return is_operator(text) && (take(), true); }
  bool take_name(std::string_view text) { return is_name(text) && (take(), true); }

  // These fail where something else is there.
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  void expect_block_end();     // "%}"
  void expect_variable_end();  // "}}"
  std::string expect_identifier();

  // The next token, for messages.
  std::string describe() const;
  int depth_max() const { return depth_max_; }
  // Throw TemplateError at the next token's line.
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void fail_depth() const;

 private:
  const std::vector<TemplateToken> tokens_;  // the last is the end
  const int depth_max_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace headrace
