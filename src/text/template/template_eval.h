// Runs a parsed template: a tree walk under the budgets of its context.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/template_ast.h"
#include "text/template/template_context.h"
#include "text/template/template_frames.h"
#include "text/template/template_value.h"

namespace headrace {

// A macro, or the body of a call block, with the frame in which it was defined.
struct TemplateMacro {
  const ast::Macro* definition;
  size_t frame;
};

// namespace(): the one thing that a template may change.
struct TemplateNamespace {
  std::vector<std::pair<std::string_view, Value>> members;
};

// The variable `loop`.
struct TemplateLoop {
  Value::List items;
  const ast::For* node;
  size_t frame;                  // in which the loop stands
  int64_t depth;                 // from 1; more in loops that call themselves
  size_t index = 0;              // from 0
  mutable Value last_changed{};  // a tuple: what loop.changed() saw last; undefined before
};

class TemplateEvaluator {
 public:
  // `variables` is an object and outlives this.
  TemplateEvaluator(TemplateContext& context, const Json& variables);
  // Throws TemplateError.
  std::string run(const ast::Body& body);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  class DepthScope;

  Flow run_body(const ast::Body& body, std::string& out);
  Flow run_statement(const ast::Statement& statement, std::string& out);
  Flow run_if(const ast::If& node, std::string& out);
  Flow run_for(const ast::For& node, std::string& out);
  Flow run_with(const ast::With& node, std::string& out);
  void run_set_block(const ast::SetBlock& node);
  void run_filter_block(const ast::FilterBlock& node, std::string& out);
  void run_call_block(const ast::CallBlock& node, std::string& out);
  // One run of a loop in a frame that was opened in `parent`.
  Flow run_loop(const ast::For& node, const Value& items, size_t parent, int64_t depth,
                std::string& out);
  // The items of a loop that its condition lets pass.
  Value::List select_items(const ast::For& node, const Value& items);
  // The text that `body` makes, in a frame of its own.
  std::string capture(const ast::Body& body);
  const TemplateMacro* define_macro(const ast::Macro& definition);

  Value evaluate(const ast::Expr& expr);
  Value evaluate_node(const ast::Literal& node);
  Value evaluate_node(const ast::Name& node);
  Value evaluate_node(const ast::ListLiteral& node);
  Value evaluate_node(const ast::DictLiteral& node);
  Value evaluate_node(const ast::Attribute& node);
  Value evaluate_node(const ast::Subscript& node);
  Value evaluate_node(const ast::Slice& node);
  Value evaluate_node(const ast::Call& node);
  Value evaluate_node(const ast::Filter& node);
  Value evaluate_node(const ast::Test& node);
  Value evaluate_node(const ast::Unary& node);
  Value evaluate_node(const ast::Chain& node);
  Value evaluate_node(const ast::Conditional& node);
  Value evaluate_node(const ast::Missing& node);
  Value evaluate_comparisons(const ast::Chain& node);
  Value evaluate_concatenation(const ast::Chain& node);
  Arguments evaluate_arguments(const ast::Arguments& arguments);
  Value apply_filter(const ast::Filter& node, const Value& input);
  Value call(const Value& callee, Arguments arguments, const TemplateMacro* caller);
  Value call_macro(const TemplateMacro& macro, Arguments arguments, const TemplateMacro* caller);
  Value call_loop(const TemplateLoop& loop, const Arguments& arguments);
  void bind_parameters(const ast::Macro& definition, Arguments& arguments);
  void bind_rest(const ast::Macro& definition, Arguments& arguments);
  Value make_namespace(const Arguments& arguments);

  void assign(const ast::Target& target, const Value& value);

  TemplateContext& context_;
  std::deque<TemplateMacro> macros_;
  std::deque<TemplateNamespace> namespaces_;
  std::deque<TemplateLoop> loops_;
  TemplateFrames frames_;
  const Value* block_text_ = nullptr;  // what a filter without operand applies to
  int depth_ = 0;
};

}  // namespace headrace
