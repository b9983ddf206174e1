// Expressions of a template: precedence climbing over its tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/template_ast.h"
#include "text/template/template_cursor.h"

namespace headrace {

// Words that are no names: "and", "if", ... and the constants.
bool is_reserved_word(std::string_view name);
bool is_constant_word(std::string_view name);

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  // One expression, or several with commas between: a tuple.
  ast::ExprPtr parse_tuple();
  // The same without "if" outside parentheses: what "if" and "for" run on.
  ast::ExprPtr parse_condition();
  ast::ExprPtr parse_expression();
  // "name(...)" and more behind "|"; `operand` null: what the block holds.
  ast::ExprPtr parse_filter_name(ast::ExprPtr operand);
  ast::ExprPtr parse_filters(ast::ExprPtr operand);
  // What "call" calls. Fails where it is no call.
  ast::ExprPtr parse_call_expression();

  // The macro around the cursor, or null: it learns whether it needs varargs and kwargs.
  ast::Macro* exchange_macro(ast::Macro* macro) { return std::exchange(macro_, macro); }
  // A filter or test that does not exist is an error of the whole template, but inside of "if" (and
  // of inline ones), as in Jinja, an error only when it is reached: templates ask first what they
  // have. Marks are lengths of the list of those that are not forgiven.
  size_t missing_mark() const { return missing_.size(); }
  void forgive_missing(size_t mark) { missing_.erase(missing_.begin() + mark, missing_.end()); }
  void refuse_missing(size_t mark) const;

 private:
  struct Missing {
    int line;
    std::string message;
  };
  struct Operator;

  bool at_expression_end() const;
  ast::ExprPtr parse_list_of(bool conditional);
  // The binary operator at the cursor, if it binds at least as tight as `level`.
  std::optional<Operator> peek_binary(int level) const;
  // Precedence climbing; operators of one level in a row become one flat chain.
  ast::ExprPtr parse_binary(int level);
  ast::ExprPtr parse_unary(bool with_filters = true);
  ast::ExprPtr parse_primary();
  ast::ExprPtr parse_name();
  ast::ExprPtr parse_parenthesis(int line);
  ast::ExprPtr parse_list(int line);
  ast::ExprPtr parse_dict(int line);
  ast::ExprPtr parse_postfix(ast::ExprPtr value);
  ast::ExprPtr parse_attribute(ast::ExprPtr object);
  ast::ExprPtr parse_subscript(ast::ExprPtr object);
  ast::ExprPtr parse_call(ast::ExprPtr callee);
  ast::Arguments parse_arguments();
  ast::ExprPtr parse_filters_and_tests(ast::ExprPtr value);
  // `[not] name [argument]` behind "is".
  ast::ExprPtr parse_test(ast::ExprPtr operand);
  bool starts_test_argument() const;
  ast::ExprPtr parse_missing(int line, std::string message);

  TokenCursor& cursor_;
  ast::Macro* macro_ = nullptr;
  std::vector<Missing> missing_;
};

}  // namespace headrace
