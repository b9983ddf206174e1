#include "text/template/template_expression_parser.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "text/template/template_builtins.h"
#include "text/template/template_error.h"

namespace headrace {
namespace {

using ast::BinaryOp;
using ast::ExprPtr;
using Kind = TemplateToken::Kind;

// Binding strength of binary operators, Jinja's order (note: ~ binds tighter than +).
enum Level {
  kOrLevel = 1,
  kAndLevel,
  kNotLevel,
  kCompareLevel,
  kAddLevel,
  kConcatLevel,
  kMultiplyLevel,
  kPowerLevel
};
struct OperatorRow {
  std::string_view text;
  BinaryOp op;
  Level level;
};
constexpr std::array<OperatorRow, 17> kBinaryOperators = {{
    {"or", BinaryOp::kOr, kOrLevel},
    {"and", BinaryOp::kAnd, kAndLevel},
    {"==", BinaryOp::kEqual, kCompareLevel},
    {"!=", BinaryOp::kNotEqual, kCompareLevel},
    {"<", BinaryOp::kLess, kCompareLevel},
    {"<=", BinaryOp::kLessEqual, kCompareLevel},
    {">", BinaryOp::kGreater, kCompareLevel},
    {">=", BinaryOp::kGreaterEqual, kCompareLevel},
    {"in", BinaryOp::kIn, kCompareLevel},
    {"+", BinaryOp::kAdd, kAddLevel},
    {"-", BinaryOp::kSubtract, kAddLevel},
    {"~", BinaryOp::kConcat, kConcatLevel},
    {"*", BinaryOp::kMultiply, kMultiplyLevel},
    {"/", BinaryOp::kDivide, kMultiplyLevel},
    {"//", BinaryOp::kFloorDivide, kMultiplyLevel},
    {"%", BinaryOp::kModulo, kMultiplyLevel},
    {"**", BinaryOp::kPower, kPowerLevel},
}};
constexpr std::array<std::string_view, 8> kReserved = {"and", "or", "not",  "in",
                                                       "is",  "if", "else", "elif"};
constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                        "False", "none", "None"};

template <class Node>
ExprPtr make(const TokenCursor& cursor, int line, Node node, int child_height) {
  if (child_height + 1 > cursor.depth_max()) cursor.fail_depth();
  return std::make_unique<ast::Expr>(ast::Expr{line, child_height + 1, std::move(node)});
}

int height(const ExprPtr& expr) { return expr ? expr->height : 0; }

int height(const std::vector<ExprPtr>& exprs) {
  int highest = 0;
  for (const ExprPtr& expr : exprs) highest = std::max(highest, height(expr));
  return highest;
}

int height(const ast::Arguments& arguments) {
  int highest = std::max(
      {height(arguments.positional), height(arguments.star), height(arguments.double_star)});
  for (const auto& [name, value] : arguments.keyword) highest = std::max(highest, height(value));
  return highest;
}

}  // namespace

struct ExpressionParser::Operator : OperatorRow {};

bool is_reserved_word(std::string_view name) {
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}
bool is_constant_word(std::string_view name) {
  return std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end();
}

void ExpressionParser::refuse_missing(size_t mark) const {
  if (mark < missing_.size()) template_error(missing_[mark].line, missing_[mark].message);
}

ExprPtr ExpressionParser::parse_missing(int line, std::string message) {
  missing_.push_back({line, message});
  return make(cursor_, line, ast::Missing{std::move(message)}, 0);
}

ExprPtr ExpressionParser::parse_tuple() { return parse_list_of(true); }
ExprPtr ExpressionParser::parse_condition() { return parse_list_of(false); }

ExprPtr ExpressionParser::parse_call_expression() {
  ExprPtr call = parse_unary();
  if (!std::holds_alternative<ast::Call>(call->node)) cursor_.fail("expected a call");
  return call;
}

bool ExpressionParser::at_expression_end() const {
  const Kind kind = cursor_.peek().kind;
  return kind == Kind::kVariableEnd || kind == Kind::kBlockEnd || kind == Kind::kEnd ||
         cursor_.is_operator(")") || cursor_.is_name("in");
}

// One expression, or several with commas between: a tuple.
ExprPtr ExpressionParser::parse_list_of(bool conditional) {
  const int line = cursor_.peek().line;
  ExprPtr first = conditional ? parse_expression() : parse_binary(kOrLevel);
  if (!cursor_.is_operator(",")) return first;
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  while (cursor_.take_operator(",")) {
    if (at_expression_end()) break;
    items.push_back(conditional ? parse_expression() : parse_binary(kOrLevel));
  }
  const int child_height = height(items);
  return make(cursor_, line, ast::ListLiteral{std::move(items), true}, child_height);
}

ExprPtr ExpressionParser::parse_expression() {
  const TokenCursor::Nest nest(cursor_);
  const int line = cursor_.peek().line;
  const size_t mark = missing_mark();
  ExprPtr value = parse_binary(kOrLevel);
  while (cursor_.take_name("if")) {
    ExprPtr condition = parse_binary(kOrLevel);
    ExprPtr otherwise;
    if (cursor_.take_name("else")) otherwise = parse_expression();
    forgive_missing(mark);
    const int child_height = std::max({height(value), height(condition), height(otherwise)});
    value = make(cursor_, line,
                 ast::Conditional{std::move(condition), std::move(value), std::move(otherwise)},
                 child_height);
  }
  return value;
}

// The binary operator at the cursor, if it binds at least as tight as `level`.
std::optional<ExpressionParser::Operator> ExpressionParser::peek_binary(int level) const {
  const TemplateToken& token = cursor_.peek();
  if (token.kind != Kind::kOperator && token.kind != Kind::kName) return std::nullopt;
  if (cursor_.is_name("not") && cursor_.is_name("in", 1) && level <= kCompareLevel) {
    return Operator{{"not in", BinaryOp::kNotIn, kCompareLevel}};
  }
  for (const OperatorRow& candidate : kBinaryOperators) {
    if (token.text == candidate.text && candidate.level >= level) return Operator{candidate};
  }
  return std::nullopt;
}

// Precedence climbing; operators of one level in a row become one flat chain.
ExprPtr ExpressionParser::parse_binary(int level) {
  const int line = cursor_.peek().line;
  ExprPtr left;
  if (level <= kNotLevel && cursor_.is_name("not")) {
    const TokenCursor::Nest nest(cursor_);
    cursor_.take();
    ExprPtr operand = parse_binary(kNotLevel);
    const int child_height = height(operand);
    left = make(cursor_, line, ast::Unary{ast::UnaryOp::kNot, std::move(operand)}, child_height);
  } else {
    left = parse_unary();
  }
  while (const std::optional<Operator> first = peek_binary(level)) {
    ast::Chain chain{std::move(left), {}};
    int child_height = height(chain.first);
    for (std::optional<Operator> next = first; next && next->level == first->level;
         next = peek_binary(level)) {
      cursor_.take();
      if (next->op == BinaryOp::kNotIn) cursor_.take();
      chain.rest.emplace_back(next->op, parse_binary(next->level + 1));
      child_height = std::max(child_height, height(chain.rest.back().second));
    }
    left = make(cursor_, line, std::move(chain), child_height);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const TokenCursor::Nest nest(cursor_);
  const int line = cursor_.peek().line;
  ExprPtr value;
  if (cursor_.is_operator("-") || cursor_.is_operator("+")) {
    const auto op = cursor_.take().text == "-" ? ast::UnaryOp::kMinus : ast::UnaryOp::kPlus;
    ExprPtr operand = parse_unary(false);
    const int child_height = height(operand);
    value = make(cursor_, line, ast::Unary{op, std::move(operand)}, child_height);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const int line = cursor_.peek().line;
  switch (cursor_.peek().kind) {
    case Kind::kString: {
      std::string text;
      while (cursor_.peek().kind == Kind::kString)
        text += cursor_.take().text;  // 'a' 'b' is one string
      return make(cursor_, line, ast::Literal{std::move(text)}, 0);
    }
    case Kind::kInteger:
      return make(cursor_, line, ast::Literal{cursor_.take().integer}, 0);
    case Kind::kFloat:
      return make(cursor_, line, ast::Literal{cursor_.take().real}, 0);
    case Kind::kName:
      return parse_name();
    case Kind::kOperator:
      if (cursor_.take_operator("(")) return parse_parenthesis(line);
      if (cursor_.take_operator("[")) return parse_list(line);
      if (cursor_.take_operator("{")) return parse_dict(line);
      break;
    default:
      break;
  }
  cursor_.fail(fmt::format("expected an expression, found {}", cursor_.describe()));
}

ExprPtr ExpressionParser::parse_name() {
  const int line = cursor_.peek().line;
  if (is_reserved_word(cursor_.peek().text))
    cursor_.fail(fmt::format("unexpected {}", cursor_.describe()));
  const std::string& name = cursor_.take().text;
  if (name == "true" || name == "True") return make(cursor_, line, ast::Literal{true}, 0);
  if (name == "false" || name == "False") return make(cursor_, line, ast::Literal{false}, 0);
  if (name == "none" || name == "None") return make(cursor_, line, ast::Literal{nullptr}, 0);
  if (macro_ != nullptr && name == "varargs") macro_->takes_varargs = true;
  if (macro_ != nullptr && name == "kwargs") macro_->takes_kwargs = true;
  return make(cursor_, line, ast::Name{name}, 0);
}

ExprPtr ExpressionParser::parse_parenthesis(int line) {
  if (cursor_.take_operator(")")) return make(cursor_, line, ast::ListLiteral{{}, true}, 0);
  ExprPtr value = parse_tuple();
  cursor_.expect_operator(")");
  return value;
}

ExprPtr ExpressionParser::parse_list(int line) {
  std::vector<ExprPtr> items;
  while (!cursor_.take_operator("]")) {
    if (!items.empty()) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator("]")) break;
    }
    items.push_back(parse_expression());
  }
  const int child_height = height(items);
  return make(cursor_, line, ast::ListLiteral{std::move(items), false}, child_height);
}

ExprPtr ExpressionParser::parse_dict(int line) {
  ast::DictLiteral dict;
  int child_height = 0;
  while (!cursor_.take_operator("}")) {
    if (!dict.entries.empty()) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator("}")) break;
    }
    ExprPtr key = parse_expression();
    cursor_.expect_operator(":");
    ExprPtr value = parse_expression();
    child_height = std::max({child_height, height(key), height(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  return make(cursor_, line, std::move(dict), child_height);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr value) {
  while (true) {
    if (cursor_.is_operator(".")) {
      value = parse_attribute(std::move(value));
    } else if (cursor_.is_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (cursor_.is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = cursor_.take().line;
  const int child_height = height(object);
  if (cursor_.peek().kind == Kind::kInteger) {
    ExprPtr key = make(cursor_, line, ast::Literal{cursor_.take().integer}, 0);
    return make(cursor_, line, ast::Subscript{std::move(object), std::move(key)}, child_height);
  }
  std::string name = cursor_.expect_identifier();
  return make(cursor_, line, ast::Attribute{std::move(object), std::move(name)}, child_height);
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = cursor_.take().line;
  ExprPtr bounds[3];
  size_t colons = 0;
  while (!cursor_.is_operator("]")) {
    if (cursor_.take_operator(":")) {
      if (++colons > 2) cursor_.fail("a slice has at most two colons");
    } else if (bounds[colons] == nullptr) {
      bounds[colons] = parse_expression();
    } else {
      cursor_.fail(fmt::format("expected ']', found {}", cursor_.describe()));
    }
  }
  cursor_.take();
  const int child_height =
      std::max({height(object), height(bounds[0]), height(bounds[1]), height(bounds[2])});
  if (colons > 0) {
    return make(cursor_, line,
                ast::Slice{std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                           std::move(bounds[2])},
                child_height);
  }
  if (!bounds[0]) cursor_.fail("expected an expression, found ']'");
  return make(cursor_, line, ast::Subscript{std::move(object), std::move(bounds[0])}, child_height);
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const int line = cursor_.peek().line;
  ast::Arguments arguments = parse_arguments();
  const int child_height = std::max(height(callee), height(arguments));
  return make(cursor_, line, ast::Call{std::move(callee), std::move(arguments)}, child_height);
}

ast::Arguments ExpressionParser::parse_arguments() {
  cursor_.expect_operator("(");
  ast::Arguments arguments;
  bool first = true;
  while (!cursor_.take_operator(")")) {
    if (!std::exchange(first, false)) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator(")")) break;
    }
    if (cursor_.take_operator("**")) {
      if (arguments.double_star) cursor_.fail("'**' occurs twice");
      arguments.double_star = parse_expression();
    } else if (cursor_.take_operator("*")) {
      if (arguments.star || arguments.double_star) cursor_.fail("'*' is out of place");
      arguments.star = parse_expression();
    } else if (cursor_.peek().kind == Kind::kName && cursor_.is_operator("=", 1)) {
      std::string name = cursor_.take().text;
      cursor_.take();
      arguments.keyword.emplace_back(std::move(name), parse_expression());
    } else {
      if (arguments.star || arguments.double_star || !arguments.keyword.empty()) {
        cursor_.fail("a positional argument follows a named one");
      }
      arguments.positional.push_back(parse_expression());
    }
  }
  return arguments;
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr value) {
  while (true) {
    if (cursor_.take_operator("|")) {
      value = parse_filter_name(std::move(value));
    } else if (cursor_.take_name("is")) {
      value = parse_test(std::move(value));
    } else if (cursor_.is_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr value) {
  while (cursor_.take_operator("|")) value = parse_filter_name(std::move(value));
  return value;
}

// `name(...)` behind a "|".
ExprPtr ExpressionParser::parse_filter_name(ExprPtr operand) {
  const int line = cursor_.peek().line;
  const std::string name = cursor_.expect_identifier();
  const TemplateFilter* filter = find_template_filter(name);
  ast::Arguments arguments;
  if (cursor_.is_operator("(")) arguments = parse_arguments();
  if (filter == nullptr) {
    return parse_missing(line, fmt::format("filter '{}' is not supported", name.substr(0, 40)));
  }
  const int child_height = std::max(height(operand), height(arguments));
  return make(cursor_, line, ast::Filter{std::move(operand), filter, std::move(arguments)},
              child_height);
}

// `[not] name [argument]` behind "is".
ExprPtr ExpressionParser::parse_test(ExprPtr operand) {
  const int line = cursor_.peek().line;
  const bool negated = cursor_.take_name("not");
  const std::string name = cursor_.expect_identifier();
  const TemplateTest* test = find_template_test(name);
  ast::Arguments arguments;
  if (cursor_.is_operator("(")) {
    arguments = parse_arguments();
  } else if (starts_test_argument()) {
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  if (test == nullptr) {
    return parse_missing(line, fmt::format("test '{}' is not supported", name.substr(0, 40)));
  }
  const int child_height = std::max(height(operand), height(arguments));
  ExprPtr value =
      make(cursor_, line, ast::Test{std::move(operand), test, std::move(arguments)}, child_height);
  if (!negated) return value;
  const int test_height = height(value);
  return make(cursor_, line, ast::Unary{ast::UnaryOp::kNot, std::move(value)}, test_height);
}

bool ExpressionParser::starts_test_argument() const {
  switch (cursor_.peek().kind) {
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat:
      return true;
    case Kind::kName:
      return !is_reserved_word(cursor_.peek().text);
    default:
      return cursor_.is_operator("[") || cursor_.is_operator("{");
  }
}

}  // namespace headrace
