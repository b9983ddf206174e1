#include "text/template/template_eval.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/template/template_arithmetic.h"
#include "text/template/template_builtins.h"

namespace headrace {

using ast::BinaryOp;

// Nesting at run time: what the parser let pass, times the calls of macros.
class TemplateEvaluator::DepthScope {
 public:
  explicit DepthScope(TemplateEvaluator& evaluator) : evaluator_(evaluator) {
    const int depth_max = 4 * evaluator_.context_.limits().depth_max;
    if (evaluator_.depth_ >= depth_max) {
      template_error(evaluator_.context_.line(),
                     fmt::format("evaluation is nested more than {} levels deep", depth_max),
                     StatusCode::kExhausted);
    }
    ++evaluator_.depth_;
  }
  ~DepthScope() { --evaluator_.depth_; }

 private:
  TemplateEvaluator& evaluator_;
};

TemplateEvaluator::TemplateEvaluator(TemplateContext& context, const Json& variables)
    : context_(context), frames_(context) {
  for (const auto& [name, value] : variables.as_object()) {
    frames_.add(name, context_.from_json(value));
  }
}

std::string TemplateEvaluator::run(const ast::Body& body) {
  std::string out;
  run_body(body, out);
  return out;
}

// Statements.

TemplateEvaluator::Flow TemplateEvaluator::run_body(const ast::Body& body, std::string& out) {
  const DepthScope depth(*this);
  for (const ast::Statement& statement : body) {
    const Flow flow = run_statement(statement, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

TemplateEvaluator::Flow TemplateEvaluator::run_statement(const ast::Statement& statement,
                                                         std::string& out) {
  context_.set_line(statement.line);
  context_.charge(1);
  if (const auto* data = std::get_if<ast::Data>(&statement.node)) {
    context_.append(out, data->text);
  } else if (const auto* output = std::get_if<ast::Output>(&statement.node)) {
    append_string(context_, evaluate(*output->value), out);
  } else if (const auto* branch = std::get_if<ast::If>(&statement.node)) {
    return run_if(*branch, out);
  } else if (const auto* loop = std::get_if<ast::For>(&statement.node)) {
    return run_for(*loop, out);
  } else if (const auto* set = std::get_if<ast::Set>(&statement.node)) {
    assign(set->target, evaluate(*set->value));
  } else if (const auto* set_block = std::get_if<ast::SetBlock>(&statement.node)) {
    run_set_block(*set_block);
  } else if (const auto* filter = std::get_if<ast::FilterBlock>(&statement.node)) {
    run_filter_block(*filter, out);
  } else if (const auto* with = std::get_if<ast::With>(&statement.node)) {
    return run_with(*with, out);
  } else if (const auto* macro = std::get_if<ast::Macro>(&statement.node)) {
    frames_.bind(macro->name, define_macro(*macro));
  } else if (const auto* call_block = std::get_if<ast::CallBlock>(&statement.node)) {
    run_call_block(*call_block, out);
  } else {
    return std::holds_alternative<ast::Break>(statement.node) ? Flow::kBreak : Flow::kContinue;
  }
  return Flow::kNormal;
}

TemplateEvaluator::Flow TemplateEvaluator::run_if(const ast::If& node, std::string& out) {
  for (const ast::If::Branch& branch : node.branches) {
    if (evaluate(*branch.condition).truthy()) return run_body(branch.body, out);
  }
  return run_body(node.otherwise, out);
}

Value::List TemplateEvaluator::select_items(const ast::For& node, const Value& value) {
  const Value::List all = iterate(context_, value);
  if (!node.condition) return all;
  std::vector<Value> selected;
  for (const Value& item : all->items) {
    context_.charge(1);
    frames_.clear_current();
    assign(node.target, item);
    if (evaluate(*node.condition).truthy()) selected.push_back(item);
  }
  frames_.clear_current();
  return context_.make_list(std::move(selected)).as<Value::List>();
}

TemplateEvaluator::Flow TemplateEvaluator::run_for(const ast::For& node, std::string& out) {
  return run_loop(node, evaluate(*node.items), frames_.current(), 1, out);
}

TemplateEvaluator::Flow TemplateEvaluator::run_loop(const ast::For& node, const Value& value,
                                                    size_t parent, int64_t depth,
                                                    std::string& out) {
  const TemplateFrames::Scope frame(frames_, parent);
  const Value::List items = select_items(node, value);
  if (items->items.empty()) return run_body(node.otherwise, out);
  context_.charge(8);  // a loop's state stays until the render ends
  TemplateLoop& loop = loops_.emplace_back(TemplateLoop{items, &node, parent, depth});
  for (; loop.index < items->items.size(); ++loop.index) {
    context_.charge(1);
    frames_.clear_current();  // what a turn sets is gone in the next
    assign(node.target, items->items[loop.index]);
    frames_.bind("loop", &loop);
    if (run_body(node.body, out) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

TemplateEvaluator::Flow TemplateEvaluator::run_with(const ast::With& node, std::string& out) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.assignments) values.push_back(evaluate(*value));
  const TemplateFrames::Scope frame(frames_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, values[i]);
  return run_body(node.body, out);
}

std::string TemplateEvaluator::capture(const ast::Body& body) {
  const TemplateFrames::Scope frame(frames_);
  std::string text;
  run_body(body, text);
  return text;
}

void TemplateEvaluator::run_set_block(const ast::SetBlock& node) {
  Value text = context_.make_string(capture(node.body));
  if (node.filter) {
    const Value* outer = std::exchange(block_text_, &text);
    Value filtered = evaluate(*node.filter);
    block_text_ = outer;
    text = std::move(filtered);
  }
  assign(node.target, text);
}

void TemplateEvaluator::run_filter_block(const ast::FilterBlock& node, std::string& out) {
  const Value text = context_.make_string(capture(node.body));
  const Value* outer = std::exchange(block_text_, &text);
  const Value filtered = evaluate(*node.filter);
  block_text_ = outer;
  append_string(context_, filtered, out);
}

void TemplateEvaluator::run_call_block(const ast::CallBlock& node, std::string& out) {
  const auto& call_node = std::get<ast::Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate_arguments(call_node.arguments);
  const TemplateMacro* caller = define_macro(node.caller);
  append_string(context_, call(callee, std::move(arguments), caller), out);
}

const TemplateMacro* TemplateEvaluator::define_macro(const ast::Macro& definition) {
  context_.charge(4);  // it stays until the render ends
  return &macros_.emplace_back(TemplateMacro{&definition, frames_.current()});
}

// Names.

void TemplateEvaluator::assign(const ast::Target& target, const Value& value) {
  if (target.items.empty()) {
    if (target.member.empty()) return frames_.bind(target.name, value);
    const Value* object = frames_.find(target.name);
    if (object == nullptr || !object->is<TemplateNamespace*>()) {
      context_.fail(fmt::format("'{}' is not a namespace", target.name));
    }
    auto& members = object->as<TemplateNamespace*>()->members;
    context_.charge(members.size() / 16);
    const auto known = std::find_if(members.begin(), members.end(), [&](const auto& member) {
      return member.first == target.member;
    });
    if (known != members.end()) {
      known->second = value;
    } else {
      members.emplace_back(target.member, value);
    }
    return;
  }
  const Value::List items = iterate(context_, value);
  if (items->items.size() != target.items.size()) {
    context_.fail(fmt::format("{} values for {} names", items->items.size(), target.items.size()));
  }
  for (size_t i = 0; i < target.items.size(); ++i) assign(target.items[i], items->items[i]);
}

// Expressions.

Value TemplateEvaluator::evaluate(const ast::Expr& expr) {
  const DepthScope depth(*this);
  context_.set_line(expr.line);
  context_.charge(1);
  return std::visit([&](const auto& node) { return evaluate_node(node); }, expr.node);
}

Value TemplateEvaluator::evaluate_node(const ast::Literal& node) {
  return context_.from_json(node.value);
}

Value TemplateEvaluator::evaluate_node(const ast::Name& node) {
  if (const Value* value = frames_.find(node.name)) return *value;
  if (const TemplateFunction* function = find_template_function(node.name)) return function;
  return Undefined{node.name};
}

Value TemplateEvaluator::evaluate_node(const ast::ListLiteral& node) {
  std::vector<Value> items;
  for (const ast::ExprPtr& item : node.items) items.push_back(evaluate(*item));
  return context_.make_list(std::move(items), node.is_tuple ? ListKind::kTuple : ListKind::kList);
}

Value TemplateEvaluator::evaluate_node(const ast::DictLiteral& node) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key_expr, value_expr] : node.entries) {
    Value key = evaluate(*key_expr);
    if (key.is_dict() || key.is_kind(ListKind::kList)) {
      context_.fail(fmt::format("'{}' cannot be a key", key.type_name()));
    }
    Value value = evaluate(*value_expr);
    context_.charge(entries.size() / 16);
    const auto known = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return equal(context_, entry.first, key);
    });
    if (known != entries.end()) {
      known->second = std::move(value);
    } else {
      entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return context_.make_dict(std::move(entries));
}

Value TemplateEvaluator::evaluate_node(const ast::Attribute& node) {
  return get_attribute(context_, evaluate(*node.object), node.name);
}

Value TemplateEvaluator::evaluate_node(const ast::Subscript& node) {
  const Value object = evaluate(*node.object);
  return get_item(context_, object, evaluate(*node.key));
}

Value TemplateEvaluator::evaluate_node(const ast::Slice& node) {
  const auto bound = [&](const ast::ExprPtr& expr) {
    return expr ? evaluate(*expr) : Value(None{});
  };
  const Value object = evaluate(*node.object);
  const Value start = bound(node.start), stop = bound(node.stop), step = bound(node.step);
  return slice(context_, object, start, stop, step);
}

Value TemplateEvaluator::evaluate_node(const ast::Call& node) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate_arguments(node.arguments);
  return call(callee, std::move(arguments), nullptr);
}

Value TemplateEvaluator::evaluate_node(const ast::Filter& node) {
  if (node.operand) return apply_filter(node, evaluate(*node.operand));
  CHECK(block_text_ != nullptr);
  return apply_filter(node, Value(*block_text_));
}

Value TemplateEvaluator::evaluate_node(const ast::Test& node) {
  const Value operand = evaluate(*node.operand);
  return node.test->run(context_, operand, evaluate_arguments(node.arguments));
}

Value TemplateEvaluator::evaluate_node(const ast::Unary& node) {
  const Value operand = evaluate(*node.operand);
  if (node.op == ast::UnaryOp::kNot) return !operand.truthy();
  return apply_sign(context_, node.op, operand);
}

Value TemplateEvaluator::evaluate_node(const ast::Conditional& node) {
  if (evaluate(*node.condition).truthy()) return evaluate(*node.then);
  return node.otherwise ? evaluate(*node.otherwise) : Value();
}

Value TemplateEvaluator::evaluate_node(const ast::Missing& node) { context_.fail(node.message); }

Value TemplateEvaluator::evaluate_node(const ast::Chain& node) {
  const BinaryOp kind = node.rest[0].first;
  if (kind == BinaryOp::kConcat) return evaluate_concatenation(node);
  if (kind >= BinaryOp::kEqual && kind <= BinaryOp::kNotIn) return evaluate_comparisons(node);
  Value value = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    if (op == BinaryOp::kOr || op == BinaryOp::kAnd) {
      if (value.truthy() == (op == BinaryOp::kOr)) return value;
      value = evaluate(*operand);
    } else {
      value = apply_arithmetic(context_, op, value, evaluate(*operand));
    }
  }
  return value;
}

Value TemplateEvaluator::evaluate_comparisons(const ast::Chain& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!apply_comparison(context_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value TemplateEvaluator::evaluate_concatenation(const ast::Chain& node) {
  std::string text;
  append_string(context_, evaluate(*node.first), text);
  for (const auto& [op, operand] : node.rest) append_string(context_, evaluate(*operand), text);
  return context_.make_string(std::move(text));
}

Value TemplateEvaluator::apply_filter(const ast::Filter& node, const Value& input) {
  const Arguments arguments = evaluate_arguments(node.arguments);
  return node.filter->run(context_, input, arguments);
}

// Calls.

Arguments TemplateEvaluator::evaluate_arguments(const ast::Arguments& node) {
  Arguments arguments;
  for (const ast::ExprPtr& value : node.positional)
    arguments.positional.push_back(evaluate(*value));
  for (const auto& [name, value] : node.keyword)
    arguments.keyword.emplace_back(name, evaluate(*value));
  if (node.star) {
    const Value::List more = iterate(context_, evaluate(*node.star));
    context_.charge(more->items.size());
    arguments.positional.insert(arguments.positional.end(), more->items.begin(), more->items.end());
  }
  if (!node.double_star) return arguments;
  const Value more = evaluate(*node.double_star);
  if (!more.is_dict()) context_.fail("'**' needs a mapping");
  context_.charge(more.entries().size());
  for (const auto& [key, value] : more.entries()) {
    // A key that is a view of template or input text outlives the call; one made at run time may
    // not.
    if (!key.is_string() || key.as<StringValue>().owner) context_.fail("'**' needs plain names");
    arguments.keyword.emplace_back(key.text(), value);
  }
  return arguments;
}

Value TemplateEvaluator::call(const Value& callee, Arguments arguments,
                              const TemplateMacro* caller) {
  if (callee.is<const TemplateMacro*>()) {
    return call_macro(*callee.as<const TemplateMacro*>(), std::move(arguments), caller);
  }
  if (callee.is<std::shared_ptr<const BoundMethod>>()) {
    const BoundMethod& bound = *callee.as<std::shared_ptr<const BoundMethod>>();
    return bound.method->run(context_, bound.self, arguments);
  }
  if (callee.is<const TemplateFunction*>()) {
    const TemplateFunction& function = *callee.as<const TemplateFunction*>();
    return function.run ? function.run(context_, arguments) : make_namespace(arguments);
  }
  if (callee.is<const TemplateLoop*>()) {
    return call_loop(*callee.as<const TemplateLoop*>(), arguments);
  }
  if (callee.is_undefined()) {
    context_.fail(fmt::format("'{}' is undefined", callee.as<Undefined>().name));
  }
  context_.fail(fmt::format("'{}' cannot be called", callee.type_name()));
}

Value TemplateEvaluator::call_loop(const TemplateLoop& loop, const Arguments& arguments) {
  if (!loop.node->is_recursive) context_.fail("only a loop marked 'recursive' can be called");
  const auto [items] = bind_arguments<1>(context_, "loop", arguments, {"iterable"});
  if (items == nullptr) context_.fail("loop() needs what to run over");
  const int line = context_.line();
  std::string text;
  run_loop(*loop.node, *items, std::min(loop.frame, frames_.current()), loop.depth + 1, text);
  context_.set_line(line);
  return context_.make_string(std::move(text));
}

Value TemplateEvaluator::call_macro(const TemplateMacro& macro, Arguments arguments,
                                    const TemplateMacro* caller) {
  const int line = context_.line();
  const TemplateFrames::Scope frame(frames_, std::min(macro.frame, frames_.current()));
  if (caller != nullptr) frames_.bind("caller", caller);
  bind_parameters(*macro.definition, arguments);
  std::string text;
  run_body(macro.definition->body, text);
  context_.set_line(line);
  return context_.make_string(std::move(text));
}

void TemplateEvaluator::bind_parameters(const ast::Macro& definition, Arguments& arguments) {
  const size_t count = definition.parameters.size();
  const size_t required = count - definition.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = definition.parameters[i];
    const auto named = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (i < arguments.positional.size()) {
      frames_.bind(name, arguments.positional[i]);
    } else if (named != arguments.keyword.end()) {
      frames_.bind(name, std::move(named->second));
      arguments.keyword.erase(named);
    } else if (i >= required) {
      frames_.bind(name, evaluate(*definition.defaults[i - required]));
    } else {
      frames_.bind(name, Undefined{name});
    }
  }
  bind_rest(definition, arguments);
}

// Arguments that no parameter took.
void TemplateEvaluator::bind_rest(const ast::Macro& definition, Arguments& arguments) {
  const size_t taken = std::min(definition.parameters.size(), arguments.positional.size());
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<ptrdiff_t>(taken));
  if (definition.takes_varargs) {
    frames_.bind("varargs", context_.make_list(std::move(arguments.positional), ListKind::kTuple));
  } else if (!arguments.positional.empty()) {
    context_.fail(fmt::format("macro '{}' takes {} arguments", definition.name,
                              definition.parameters.size()));
  }
  if (definition.takes_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : arguments.keyword) {
      entries.emplace_back(Value::view(name), std::move(value));
    }
    frames_.bind("kwargs", context_.make_dict(std::move(entries)));
  } else if (!arguments.keyword.empty()) {
    context_.fail(fmt::format("macro '{}' takes no argument '{}'", definition.name,
                              arguments.keyword[0].first));
  }
}

Value TemplateEvaluator::make_namespace(const Arguments& arguments) {
  context_.charge(4);  // it stays until the render ends
  if (arguments.positional.size() > 1) context_.fail("namespace() has too many arguments");
  TemplateNamespace& result = namespaces_.emplace_back();
  for (const Value& initial : arguments.positional) {
    if (!initial.is_dict()) context_.fail("namespace() needs a mapping");
    for (const auto& [key, value] : initial.entries()) {
      if (!key.is_string() || key.as<StringValue>().owner)
        context_.fail("namespace() needs plain names");
      result.members.emplace_back(key.text(), value);
    }
  }
  for (const auto& [name, value] : arguments.keyword) {
    result.members.emplace_back(name, value);
  }
  return &result;
}

}  // namespace headrace
