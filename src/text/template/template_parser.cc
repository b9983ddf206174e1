#include "text/template/template_parser.h"

#include <algorithm>
#include <span>

#include <fmt/core.h>

#include "text/template/template_cursor.h"
#include "text/template/template_expression_parser.h"

namespace headrace {
namespace {

using ast::ExprPtr;
using Kind = TemplateToken::Kind;

template <class Items>
bool contains(const Items& items, std::string_view item) {
  return std::find(std::begin(items), std::end(items), item) != std::end(items);
}

class StatementParser {
 public:
  StatementParser(std::vector<TemplateToken> tokens, int depth_max)
      : cursor_(std::move(tokens), depth_max), expressions_(cursor_) {}

  ast::Body run() {
    ast::Body body = parse_body({});
    expressions_.refuse_missing(0);
    return body;
  }

 private:
  using EndNames = std::span<const std::string_view>;

  // Up to a block whose name is one of `ends` (its "{%" is taken, its name is not), or the end.
  ast::Body parse_body(EndNames ends) {
    const TokenCursor::Nest nest(cursor_);
    ast::Body body;
    while (cursor_.peek().kind != Kind::kEnd) {
      const int line = cursor_.peek().line;
      switch (cursor_.peek().kind) {
        case Kind::kData:
          body.push_back({line, ast::Data{cursor_.take().text}});
          break;
        case Kind::kVariableBegin:
          cursor_.take();
          body.push_back({line, ast::Output{expressions_.parse_tuple()}});
          cursor_.expect_variable_end();
          break;
        default:
          cursor_.take();  // "{%": the lexer yields no other token between tags
          if (cursor_.at(Kind::kName) && contains(ends, cursor_.peek().text)) return body;
          parse_statement(line, body);
      }
    }
    if (!ends.empty()) cursor_.fail(fmt::format("'{}' is missing", ends.back()));
    return body;
  }
  // As above, for blocks with one end; takes the end whole.
  ast::Body parse_body_until(std::string_view end) {
    const size_t mark = expressions_.missing_mark();
    ast::Body body = parse_body(EndNames(&end, 1));
    expressions_.refuse_missing(mark);
    cursor_.take();
    cursor_.expect_block_end();
    return body;
  }

  void parse_statement(int line, ast::Body& body) {
    const std::string name = cursor_.expect_identifier();
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
      cursor_.expect_block_end();
      body.push_back({line, ast::With{{}, parse_body_until("endgeneration")}});
    } else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) cursor_.fail(fmt::format("'{}' outside a loop", name));
      cursor_.expect_block_end();
      if (name == "break") {
        body.push_back({line, ast::Break{}});
      } else {
        body.push_back({line, ast::Continue{}});
      }
    } else {
      cursor_.fail(fmt::format("block '{}' is not supported", name.substr(0, 40)));
    }
  }

  ast::If parse_if() {
    static constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
    const size_t mark = expressions_.missing_mark();
    ast::If result;
    do {
      ExprPtr condition = expressions_.parse_condition();
      cursor_.expect_block_end();
      result.branches.push_back({std::move(condition), parse_body(kEnds)});
    } while (cursor_.take_name("elif"));
    if (cursor_.take_name("else")) {
      cursor_.expect_block_end();
      result.otherwise = parse_body(EndNames(&kEnds[2], 1));
    }
    cursor_.take();
    cursor_.expect_block_end();
    expressions_.forgive_missing(mark);
    return result;
  }

  ast::For parse_for() {
    static constexpr std::string_view kEnds[] = {"else", "endfor"};
    ast::For result;
    result.target = parse_target_list();
    cursor_.expect_name("in");
    result.items = expressions_.parse_condition();
    if (cursor_.take_name("if")) result.condition = expressions_.parse_expression();
    result.is_recursive = cursor_.take_name("recursive");
    cursor_.expect_block_end();
    ++loop_depth_;
    const size_t mark = expressions_.missing_mark();
    result.body = parse_body(kEnds);
    expressions_.refuse_missing(mark);
    --loop_depth_;
    if (cursor_.take_name("else")) {
      cursor_.expect_block_end();
      result.otherwise = parse_body_until("endfor");
    } else {
      cursor_.take();
      cursor_.expect_block_end();
    }
    return result;
  }

  void parse_set(int line, ast::Body& body) {
    ast::Target target = parse_target_list();
    if (cursor_.take_operator("=")) {
      ExprPtr value = expressions_.parse_tuple();
      cursor_.expect_block_end();
      body.push_back({line, ast::Set{std::move(target), std::move(value)}});
      return;
    }
    ExprPtr filter;
    if (cursor_.is_operator("|")) filter = expressions_.parse_filters(nullptr);
    cursor_.expect_block_end();
    body.push_back(
        {line, ast::SetBlock{std::move(target), std::move(filter), parse_body_until("endset")}});
  }

  ast::Macro parse_macro() {
    ast::Macro macro;
    macro.name = cursor_.expect_identifier();
    parse_parameters(macro);
    cursor_.expect_block_end();
    parse_macro_body(macro, "endmacro");
    return macro;
  }

  ast::CallBlock parse_call_block() {
    ast::CallBlock block;
    block.caller.name = "caller";
    if (cursor_.is_operator("(")) parse_parameters(block.caller);
    block.call = expressions_.parse_call_expression();
    cursor_.expect_block_end();
    parse_macro_body(block.caller, "endcall");
    return block;
  }

  void parse_macro_body(ast::Macro& macro, std::string_view end) {
    const int outer_loops = std::exchange(loop_depth_, 0);
    ast::Macro* outer_macro = expressions_.exchange_macro(&macro);
    macro.body = parse_body_until(end);
    expressions_.exchange_macro(outer_macro);
    loop_depth_ = outer_loops;
  }

  void parse_parameters(ast::Macro& macro) {
    cursor_.expect_operator("(");
    while (!cursor_.take_operator(")")) {
      if (!macro.parameters.empty()) cursor_.expect_operator(",");
      std::string name = cursor_.expect_identifier();
      if (contains(macro.parameters, name))
        cursor_.fail(fmt::format("parameter '{}' occurs twice", name));
      macro.parameters.push_back(std::move(name));
      if (cursor_.take_operator("=")) {
        macro.defaults.push_back(expressions_.parse_expression());
      } else if (!macro.defaults.empty()) {
        cursor_.fail("a parameter without default follows one with");
      }
    }
  }

  ast::FilterBlock parse_filter_block() {
    ExprPtr filter = expressions_.parse_filters(expressions_.parse_filter_name(nullptr));
    cursor_.expect_block_end();
    return {std::move(filter), parse_body_until("endfilter")};
  }

  ast::With parse_with() {
    ast::With with;
    while (cursor_.peek().kind != Kind::kBlockEnd) {
      if (!with.assignments.empty()) cursor_.expect_operator(",");
      ast::Target target = parse_target_list();
      cursor_.expect_operator("=");
      with.assignments.emplace_back(std::move(target), expressions_.parse_expression());
    }
    cursor_.expect_block_end();
    with.body = parse_body_until("endwith");
    return with;
  }

  // a | a.b | a, b | (a, b), c
  ast::Target parse_target_list() {
    ast::Target first = parse_target();
    if (!cursor_.is_operator(",")) return first;
    ast::Target tuple;
    tuple.items.push_back(std::move(first));
    while (cursor_.take_operator(",")) {
      if (cursor_.is_name("in") || cursor_.is_operator("=") || cursor_.is_operator(")")) break;
      tuple.items.push_back(parse_target());
    }
    return tuple;
  }
  ast::Target parse_target() {
    const TokenCursor::Nest nest(cursor_);
    if (cursor_.take_operator("(")) {
      ast::Target target = parse_target_list();
      cursor_.expect_operator(")");
      return target;
    }
    ast::Target target;
    target.name = cursor_.expect_identifier();
    if (is_reserved_word(target.name) || is_constant_word(target.name)) {
      cursor_.fail(fmt::format("cannot assign to '{}'", target.name));
    }
    if (cursor_.take_operator(".")) target.member = cursor_.expect_identifier();
    return target;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int loop_depth_ = 0;
};

}  // namespace

ast::Body parse_template(std::string_view source, int depth_max) {
  return StatementParser(lex_template(source), depth_max).run();
}

}  // namespace headrace
