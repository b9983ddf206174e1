// The syntax tree of a template. Immutable once parsed. No expression is higher than the depth
// limit, so that walking and destroying it recursively is safe: chains of operators of one
// precedence are flat.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace headrace {

struct TemplateFilter;  // template_builtins.h
struct TemplateTest;

namespace ast {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         // *args, or null
  ExprPtr double_star;  // **kwargs, or null
};

enum class BinaryOp {
  kOr,
  kAnd,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kAdd,
  kSubtract,
  kConcat,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
enum class UnaryOp { kNot, kMinus, kPlus };

struct Literal {
  Json value;
};  // none, boolean, integer, float or string
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExprPtr> items;
  bool is_tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Subscript {
  ExprPtr object, key;
};
struct Slice {
  ExprPtr object, start, stop, step;
};  // bounds may be null
struct Call {
  ExprPtr callee;
  Arguments arguments;
};
struct Filter {
  ExprPtr operand;
  const TemplateFilter* filter;
  Arguments arguments;
};  // operand null: the block's text
struct Test {
  ExprPtr operand;
  const TemplateTest* test;
  Arguments arguments;
};
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
struct Chain {
  ExprPtr first;
  std::vector<std::pair<BinaryOp, ExprPtr>> rest;
};  // one precedence
struct Conditional {
  ExprPtr condition, then, otherwise;
};  // otherwise may be null

struct Missing {
  std::string message;
};  // a filter or test that does not exist, where reaching it is the error

struct Expr {
  int line;
  int height;  // 1 + the highest child's
  std::variant<Literal, Name, ListLiteral, DictLiteral, Attribute, Subscript, Slice, Call, Filter,
               Test, Unary, Chain, Conditional, Missing>
      node;
};

// What "set" and "for" assign to: a name, a member of a namespace, or a tuple of targets.
struct Target {
  std::string name;    // empty for a tuple
  std::string member;  // of the namespace `name`; empty for a plain name
  std::vector<Target> items;
};

struct Statement;
using Body = std::vector<Statement>;

struct Data {
  std::string text;
};
struct Output {
  ExprPtr value;
};
struct If {
  struct Branch {
    ExprPtr condition;
    Body body;
  };
  std::vector<Branch> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr items, condition;  // condition may be null
  Body body, otherwise;
  bool is_recursive = false;  // loop(items) runs the body again
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;
  Body body;
};  // filter may be null
struct FilterBlock {
  ExprPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool takes_varargs = false;     // its body names varargs, kwargs: what no parameter took
  bool takes_kwargs = false;
  Body body;
};
struct CallBlock {
  Macro caller;
  ExprPtr call;
};  // call's node is a Call
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Data, Output, If, For, Set, SetBlock, FilterBlock, With, Macro, CallBlock, Break,
               Continue>
      node;
};

}  // namespace ast
}  // namespace headrace
