#include "text/template_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <fmt/core.h>

#include "text/template_builtins.h"
#include "text/template_error.h"
#include "text/template_lexer.h"

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
struct Operator {
  std::string_view text;
  BinaryOp op;
  Level level;
};
constexpr std::array<Operator, 17> kBinaryOperators = {{
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

template <class Items>
bool contains(const Items& items, std::string_view item) {
  return std::find(std::begin(items), std::end(items), item) != std::end(items);
}

class Parser {
 public:
  Parser(std::vector<TemplateToken> tokens, int depth_max)
      : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  ast::Body run() {
    ast::Body body = parse_body({});
    if (peek().kind != Kind::kEnd) fail("unexpected end of a block");
    return body;
  }

 private:
  // Counts one level of nesting while it lives.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.depth_max_) parser_.fail_depth();
    }
    ~Nest() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  // Tokens.
  const TemplateToken& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const TemplateToken& take() {
    const TemplateToken& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_operator(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kOperator && peek(ahead).text == text;
  }
  bool is_name(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == Kind::kName && peek(ahead).text == text;
  }
  bool take_operator(std::string_view text) { return is_operator(text) && (take(), true); }
  bool take_name(std::string_view text) { return is_name(text) && (take(), true); }
  void expect_operator(std::string_view text) {
    if (!take_operator(text)) fail(fmt::format("expected '{}', found {}", text, describe(peek())));
  }
  void expect_name(std::string_view text) {
    if (!take_name(text)) fail(fmt::format("expected '{}', found {}", text, describe(peek())));
  }
  std::string expect_identifier() {
    if (peek().kind != Kind::kName)
      fail(fmt::format("expected a name, found {}", describe(peek())));
    return take().text;
  }
  void expect_block_end() {
    if (take().kind != Kind::kBlockEnd) {
      --at_;
      fail(fmt::format("expected '%}}', found {}", describe(peek())));
    }
  }
  static std::string describe(const TemplateToken& token) {
    switch (token.kind) {
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
        return fmt::format("'{}'", token.text.substr(0, 40));
    }
  }
  [[noreturn]] void fail(std::string message) const {
    template_error(peek().line, std::move(message));
  }
  [[noreturn]] void fail_depth() const {
    template_error(peek().line, fmt::format("nested more than {} levels deep", depth_max_),
                   StatusCode::kExhausted);
  }

  // Statements.
  using EndNames = std::span<const std::string_view>;

  // Up to a block whose name is one of `ends` (its "{%" is taken, its name is not), or the end.
  ast::Body parse_body(EndNames ends) {
    const Nest nest(*this);
    ast::Body body;
    while (peek().kind != Kind::kEnd) {
      const int line = peek().line;
      switch (peek().kind) {
        case Kind::kData:
          body.push_back({line, ast::Data{take().text}});
          break;
        case Kind::kVariableBegin:
          take();
          body.push_back({line, ast::Output{parse_tuple()}});
          if (take().kind != Kind::kVariableEnd) {
            --at_;
            fail(fmt::format("expected '}}}}', found {}", describe(peek())));
          }
          break;
        default:
          take();  // "{%": the lexer yields no other token between tags
          if (peek().kind == Kind::kName && contains(ends, peek().text)) return body;
          parse_statement(line, body);
      }
    }
    if (!ends.empty()) fail(fmt::format("'{}' is missing", ends.back()));
    return body;
  }
  // As above, for blocks with one end; takes the end whole.
  ast::Body parse_body_until(std::string_view end) {
    ast::Body body = parse_body(EndNames(&end, 1));
    take();
    expect_block_end();
    return body;
  }

  void parse_statement(int line, ast::Body& body) {
    const std::string name = expect_identifier();
    if (name == "if") {
      body.push_back({line, parse_if()});
    } else if (name == "for") {
      body.push_back({line, parse_for()});
    } else if (name == "set") {
      parse_set(line, body);
    } else if (name == "macro") {
      body.push_back({line, parse_macro()});
    } else if (name == "call") {
      body.push_back({line, parse_call_block()});
    } else if (name == "filter") {
      body.push_back({line, parse_filter_block()});
    } else if (name == "with") {
      body.push_back({line, parse_with()});
    } else if (name == "generation") {  // marks a turn for training; here its text is just text
      expect_block_end();
      body.push_back({line, ast::With{{}, parse_body_until("endgeneration")}});
    } else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) fail(fmt::format("'{}' outside a loop", name));
      expect_block_end();
      if (name == "break") {
        body.push_back({line, ast::Break{}});
      } else {
        body.push_back({line, ast::Continue{}});
      }
    } else {
      fail(fmt::format("block '{}' is not supported", name.substr(0, 40)));
    }
  }

  ast::If parse_if() {
    static constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
    ast::If result;
    do {
      ExprPtr condition = parse_tuple(false);
      expect_block_end();
      result.branches.push_back({std::move(condition), parse_body(kEnds)});
    } while (take_name("elif"));
    if (take_name("else")) {
      expect_block_end();
      result.otherwise = parse_body_until("endif");
    } else {
      take();
      expect_block_end();
    }
    return result;
  }

  ast::For parse_for() {
    static constexpr std::string_view kEnds[] = {"else", "endfor"};
    ast::For result;
    result.target = parse_target_list();
    expect_name("in");
    result.items = parse_tuple(false);
    if (take_name("if")) result.condition = parse_expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    expect_block_end();
    ++loop_depth_;
    result.body = parse_body(kEnds);
    --loop_depth_;
    if (take_name("else")) {
      expect_block_end();
      result.otherwise = parse_body_until("endfor");
    } else {
      take();
      expect_block_end();
    }
    return result;
  }

  void parse_set(int line, ast::Body& body) {
    ast::Target target = parse_target_list();
    if (take_operator("=")) {
      ExprPtr value = parse_tuple();
      expect_block_end();
      body.push_back({line, ast::Set{std::move(target), std::move(value)}});
      return;
    }
    ExprPtr filter;
    if (is_operator("|")) filter = parse_filters(nullptr);
    expect_block_end();
    body.push_back(
        {line, ast::SetBlock{std::move(target), std::move(filter), parse_body_until("endset")}});
  }

  ast::Macro parse_macro() {
    ast::Macro macro;
    macro.name = expect_identifier();
    parse_parameters(macro);
    expect_block_end();
    parse_macro_body(macro, "endmacro");
    return macro;
  }

  ast::CallBlock parse_call_block() {
    ast::CallBlock block;
    block.caller.name = "caller";
    if (is_operator("(")) parse_parameters(block.caller);
    block.call = parse_unary();
    if (!std::holds_alternative<ast::Call>(block.call->node)) fail("expected a call");
    expect_block_end();
    parse_macro_body(block.caller, "endcall");
    return block;
  }

  void parse_macro_body(ast::Macro& macro, std::string_view end) {
    const int outer_loops = std::exchange(loop_depth_, 0);
    ast::Macro* outer_macro = std::exchange(macro_, &macro);
    macro.body = parse_body_until(end);
    macro_ = outer_macro;
    loop_depth_ = outer_loops;
  }

  void parse_parameters(ast::Macro& macro) {
    expect_operator("(");
    while (!take_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      std::string name = expect_identifier();
      if (contains(macro.parameters, name)) fail(fmt::format("parameter '{}' occurs twice", name));
      macro.parameters.push_back(std::move(name));
      if (take_operator("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail("a parameter without default follows one with");
      }
    }
  }

  ast::FilterBlock parse_filter_block() {
    ExprPtr filter = parse_filters(parse_filter(nullptr));
    expect_block_end();
    return {std::move(filter), parse_body_until("endfilter")};
  }

  ast::With parse_with() {
    ast::With with;
    while (peek().kind != Kind::kBlockEnd) {
      if (!with.assignments.empty()) expect_operator(",");
      ast::Target target = parse_target_list();
      expect_operator("=");
      with.assignments.emplace_back(std::move(target), parse_expression());
    }
    expect_block_end();
    with.body = parse_body_until("endwith");
    return with;
  }

  // a | a.b | a, b | (a, b), c
  ast::Target parse_target_list() {
    ast::Target first = parse_target();
    if (!is_operator(",")) return first;
    ast::Target tuple;
    tuple.items.push_back(std::move(first));
    while (take_operator(",")) {
      if (is_name("in") || is_operator("=") || is_operator(")")) break;
      tuple.items.push_back(parse_target());
    }
    return tuple;
  }
  ast::Target parse_target() {
    const Nest nest(*this);
    if (take_operator("(")) {
      ast::Target target = parse_target_list();
      expect_operator(")");
      return target;
    }
    ast::Target target;
    target.name = expect_identifier();
    if (contains(kReserved, target.name) || is_constant(target.name)) {
      fail(fmt::format("cannot assign to '{}'", target.name));
    }
    if (take_operator(".")) target.member = expect_identifier();
    return target;
  }
  static bool is_constant(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" ||
           name == "False" || name == "None";
  }

  // Expressions.
  template <class Node>
  ExprPtr make(int line, Node node, int child_height) {
    if (child_height + 1 > depth_max_) fail_depth();
    return std::make_unique<ast::Expr>(ast::Expr{line, child_height + 1, std::move(node)});
  }
  static int height(const ExprPtr& expr) { return expr ? expr->height : 0; }
  static int height(const std::vector<ExprPtr>& exprs) {
    int highest = 0;
    for (const ExprPtr& expr : exprs) highest = std::max(highest, height(expr));
    return highest;
  }
  static int height(const ast::Arguments& arguments) {
    int highest = std::max(
        {height(arguments.positional), height(arguments.star), height(arguments.double_star)});
    for (const auto& [name, value] : arguments.keyword) highest = std::max(highest, height(value));
    return highest;
  }

  bool at_expression_end() const {
    const Kind kind = peek().kind;
    return kind == Kind::kVariableEnd || kind == Kind::kBlockEnd || kind == Kind::kEnd ||
           is_operator(")") || is_name("in");
  }

  // One expression, or several with commas between: a tuple.
  ExprPtr parse_tuple(bool conditional = true) {
    const int line = peek().line;
    ExprPtr first = conditional ? parse_expression() : parse_binary(kOrLevel);
    if (!is_operator(",")) return first;
    std::vector<ExprPtr> items;
    items.push_back(std::move(first));
    while (take_operator(",")) {
      if (at_expression_end()) break;
      items.push_back(conditional ? parse_expression() : parse_binary(kOrLevel));
    }
    const int child_height = height(items);
    return make(line, ast::ListLiteral{std::move(items), true}, child_height);
  }

  ExprPtr parse_expression() {
    const Nest nest(*this);
    const int line = peek().line;
    ExprPtr value = parse_binary(kOrLevel);
    while (take_name("if")) {
      ExprPtr condition = parse_binary(kOrLevel);
      ExprPtr otherwise;
      if (take_name("else")) otherwise = parse_expression();
      const int child_height = std::max({height(value), height(condition), height(otherwise)});
      value =
          make(line, ast::Conditional{std::move(condition), std::move(value), std::move(otherwise)},
               child_height);
    }
    return value;
  }

  // The binary operator at the cursor, if it binds at least as tight as `level`.
  std::optional<Operator> peek_binary(int level) const {
    const TemplateToken& token = peek();
    if (token.kind != Kind::kOperator && token.kind != Kind::kName) return std::nullopt;
    if (is_name("not") && is_name("in", 1) && level <= kCompareLevel) {
      return Operator{"not in", BinaryOp::kNotIn, kCompareLevel};
    }
    for (const Operator& candidate : kBinaryOperators) {
      if (token.text == candidate.text && candidate.level >= level) return candidate;
    }
    return std::nullopt;
  }

  // Precedence climbing; operators of one level in a row become one flat chain.
  ExprPtr parse_binary(int level) {
    const int line = peek().line;
    ExprPtr left;
    if (level <= kNotLevel && is_name("not")) {
      const Nest nest(*this);
      take();
      ExprPtr operand = parse_binary(kNotLevel);
      const int child_height = height(operand);
      left = make(line, ast::Unary{ast::UnaryOp::kNot, std::move(operand)}, child_height);
    } else {
      left = parse_unary();
    }
    while (const std::optional<Operator> first = peek_binary(level)) {
      ast::Chain chain{std::move(left), {}};
      int child_height = height(chain.first);
      for (std::optional<Operator> next = first; next && next->level == first->level;
           next = peek_binary(level)) {
        take();
        if (next->op == BinaryOp::kNotIn) take();
        chain.rest.emplace_back(next->op, parse_binary(next->level + 1));
        child_height = std::max(child_height, height(chain.rest.back().second));
      }
      left = make(line, std::move(chain), child_height);
    }
    return left;
  }

  ExprPtr parse_unary(bool with_filters = true) {
    const Nest nest(*this);
    const int line = peek().line;
    ExprPtr value;
    if (is_operator("-") || is_operator("+")) {
      const auto op = take().text == "-" ? ast::UnaryOp::kMinus : ast::UnaryOp::kPlus;
      ExprPtr operand = parse_unary(false);
      const int child_height = height(operand);
      value = make(line, ast::Unary{op, std::move(operand)}, child_height);
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
  }

  ExprPtr parse_primary() {
    const int line = peek().line;
    switch (peek().kind) {
      case Kind::kString: {
        std::string text;
        while (peek().kind == Kind::kString) text += take().text;  // 'a' 'b' is one string
        return make(line, ast::Literal{std::move(text)}, 0);
      }
      case Kind::kInteger:
        return make(line, ast::Literal{take().integer}, 0);
      case Kind::kFloat:
        return make(line, ast::Literal{take().real}, 0);
      case Kind::kName:
        return parse_name();
      case Kind::kOperator:
        if (take_operator("(")) return parse_parenthesis(line);
        if (take_operator("[")) return parse_list(line);
        if (take_operator("{")) return parse_dict(line);
        break;
      default:
        break;
    }
    fail(fmt::format("expected an expression, found {}", describe(peek())));
  }

  ExprPtr parse_name() {
    const int line = peek().line;
    if (contains(kReserved, peek().text)) fail(fmt::format("unexpected {}", describe(peek())));
    const std::string& name = take().text;
    if (name == "true" || name == "True") return make(line, ast::Literal{true}, 0);
    if (name == "false" || name == "False") return make(line, ast::Literal{false}, 0);
    if (name == "none" || name == "None") return make(line, ast::Literal{nullptr}, 0);
    if (macro_ != nullptr && name == "varargs") macro_->takes_varargs = true;
    if (macro_ != nullptr && name == "kwargs") macro_->takes_kwargs = true;
    return make(line, ast::Name{name}, 0);
  }

  ExprPtr parse_parenthesis(int line) {
    if (take_operator(")")) return make(line, ast::ListLiteral{{}, true}, 0);
    ExprPtr value = parse_tuple();
    expect_operator(")");
    return value;
  }

  ExprPtr parse_list(int line) {
    std::vector<ExprPtr> items;
    while (!take_operator("]")) {
      if (!items.empty()) {
        expect_operator(",");
        if (take_operator("]")) break;
      }
      items.push_back(parse_expression());
    }
    const int child_height = height(items);
    return make(line, ast::ListLiteral{std::move(items), false}, child_height);
  }

  ExprPtr parse_dict(int line) {
    ast::DictLiteral dict;
    int child_height = 0;
    while (!take_operator("}")) {
      if (!dict.entries.empty()) {
        expect_operator(",");
        if (take_operator("}")) break;
      }
      ExprPtr key = parse_expression();
      expect_operator(":");
      ExprPtr value = parse_expression();
      child_height = std::max({child_height, height(key), height(value)});
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
    return make(line, std::move(dict), child_height);
  }

  ExprPtr parse_postfix(ExprPtr value) {
    while (true) {
      if (is_operator(".")) {
        value = parse_attribute(std::move(value));
      } else if (is_operator("[")) {
        value = parse_subscript(std::move(value));
      } else if (is_operator("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExprPtr parse_attribute(ExprPtr object) {
    const int line = take().line;
    const int child_height = height(object);
    if (peek().kind == Kind::kInteger) {
      ExprPtr key = make(line, ast::Literal{take().integer}, 0);
      return make(line, ast::Subscript{std::move(object), std::move(key)}, child_height);
    }
    std::string name = expect_identifier();
    return make(line, ast::Attribute{std::move(object), std::move(name)}, child_height);
  }

  ExprPtr parse_subscript(ExprPtr object) {
    const int line = take().line;
    ExprPtr bounds[3];
    size_t colons = 0;
    while (!is_operator("]")) {
      if (take_operator(":")) {
        if (++colons > 2) fail("a slice has at most two colons");
      } else if (bounds[colons] == nullptr) {
        bounds[colons] = parse_expression();
      } else {
        fail(fmt::format("expected ']', found {}", describe(peek())));
      }
    }
    take();
    const int child_height =
        std::max({height(object), height(bounds[0]), height(bounds[1]), height(bounds[2])});
    if (colons > 0) {
      return make(line,
                  ast::Slice{std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                             std::move(bounds[2])},
                  child_height);
    }
    if (!bounds[0]) fail("expected an expression, found ']'");
    return make(line, ast::Subscript{std::move(object), std::move(bounds[0])}, child_height);
  }

  ExprPtr parse_call(ExprPtr callee) {
    const int line = peek().line;
    ast::Arguments arguments = parse_arguments();
    const int child_height = std::max(height(callee), height(arguments));
    return make(line, ast::Call{std::move(callee), std::move(arguments)}, child_height);
  }

  ast::Arguments parse_arguments() {
    expect_operator("(");
    ast::Arguments arguments;
    bool first = true;
    while (!take_operator(")")) {
      if (!std::exchange(first, false)) {
        expect_operator(",");
        if (take_operator(")")) break;
      }
      if (take_operator("**")) {
        if (arguments.double_star) fail("'**' occurs twice");
        arguments.double_star = parse_expression();
      } else if (take_operator("*")) {
        if (arguments.star || arguments.double_star) fail("'*' is out of place");
        arguments.star = parse_expression();
      } else if (peek().kind == Kind::kName && is_operator("=", 1)) {
        std::string name = take().text;
        take();
        arguments.keyword.emplace_back(std::move(name), parse_expression());
      } else {
        if (arguments.star || arguments.double_star || !arguments.keyword.empty()) {
          fail("a positional argument follows a named one");
        }
        arguments.positional.push_back(parse_expression());
      }
    }
    return arguments;
  }

  ExprPtr parse_filters_and_tests(ExprPtr value) {
    while (true) {
      if (take_operator("|")) {
        value = parse_filter(std::move(value));
      } else if (take_name("is")) {
        value = parse_test(std::move(value));
      } else if (is_operator("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExprPtr parse_filters(ExprPtr value) {
    while (take_operator("|")) value = parse_filter(std::move(value));
    return value;
  }

  // `name(...)` behind a "|".
  ExprPtr parse_filter(ExprPtr operand) {
    const int line = peek().line;
    const std::string name = expect_identifier();
    const TemplateFilter* filter = find_template_filter(name);
    if (filter == nullptr) fail(fmt::format("filter '{}' is not supported", name.substr(0, 40)));
    ast::Arguments arguments;
    if (is_operator("(")) arguments = parse_arguments();
    const int child_height = std::max(height(operand), height(arguments));
    return make(line, ast::Filter{std::move(operand), filter, std::move(arguments)}, child_height);
  }

  // `[not] name [argument]` behind "is".
  ExprPtr parse_test(ExprPtr operand) {
    const int line = peek().line;
    const bool negated = take_name("not");
    const std::string name = expect_identifier();
    const TemplateTest* test = find_template_test(name);
    if (test == nullptr) fail(fmt::format("test '{}' is not supported", name.substr(0, 40)));
    ast::Arguments arguments;
    if (is_operator("(")) {
      arguments = parse_arguments();
    } else if (starts_test_argument()) {
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    const int child_height = std::max(height(operand), height(arguments));
    ExprPtr value =
        make(line, ast::Test{std::move(operand), test, std::move(arguments)}, child_height);
    if (!negated) return value;
    const int test_height = height(value);
    return make(line, ast::Unary{ast::UnaryOp::kNot, std::move(value)}, test_height);
  }
  bool starts_test_argument() const {
    switch (peek().kind) {
      case Kind::kString:
      case Kind::kInteger:
      case Kind::kFloat:
        return true;
      case Kind::kName:
        return !contains(kReserved, peek().text);
      default:
        return is_operator("[") || is_operator("{");
    }
  }

  const std::vector<TemplateToken> tokens_;
  const int depth_max_;
  size_t at_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  ast::Macro* macro_ = nullptr;  // the innermost one around the cursor
};

}  // namespace

ast::Body parse_template(std::string_view source, int depth_max) {
  return Parser(lex_template(source), depth_max).run();
}

}  // namespace headrace
