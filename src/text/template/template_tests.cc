// What may follow "is".
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "text/template/template_arithmetic.h"
#include "text/template/template_builtins.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {
namespace {

using ast::BinaryOp;

template <bool (*holds)(const Value&)>
bool test_value(TemplateContext& context, const Value& value, const Arguments& arguments) {
  bind_arguments<0>(context, "this test", arguments, {});
  return holds(value);
}

const Value& only_argument(TemplateContext& context, const Arguments& arguments) {
  const auto [argument] = bind_arguments<1>(context, "this test", arguments, {"other"});
  if (argument == nullptr) context.fail("this test needs an argument");
  return *argument;
}

template <BinaryOp op>
bool test_against(TemplateContext& context, const Value& value, const Arguments& arguments) {
  return apply_comparison(context, op, value, only_argument(context, arguments));
}

int64_t remainder(TemplateContext& context, const Value& value, int64_t divisor) {
  if (!value.is_integral()) context.fail(fmt::format("'{}' is not an integer", value.type_name()));
  if (divisor == 0) context.fail("division by zero");
  return divisor == -1 ? 0 : value.integer() % divisor;
}
bool test_odd(TemplateContext& context, const Value& value, const Arguments&) {
  return remainder(context, value, 2) != 0;
}
bool test_even(TemplateContext& context, const Value& value, const Arguments&) {
  return remainder(context, value, 2) == 0;
}
bool test_divisible(TemplateContext& context, const Value& value, const Arguments& arguments) {
  const Value& divisor = only_argument(context, arguments);
  return remainder(context, value, integer_argument(context, "num", &divisor, 0)) == 0;
}

// Identity: of values that cannot change, the same type and value.
bool test_same(TemplateContext& context, const Value& value, const Arguments& arguments) {
  const Value& other = only_argument(context, arguments);
  return value.type_name() == other.type_name() && equal(context, value, other);
}

template <bool upper>
bool test_case(TemplateContext& context, const Value& value, const Arguments&) {
  const Value text = to_string(context, value);
  context.charge(text.text().size() / 64);
  bool found = false;
  for (std::string_view c : characters(text.text())) {
    const Utf8Step step = utf8_step(c);
    if (step.state != Utf8State::kValid) continue;
    if (upper ? is_lower(step.code_point) : is_upper(step.code_point)) return false;
    found |= upper ? is_upper(step.code_point) : is_lower(step.code_point);
  }
  return found;
}

// Whether a filter, or a test, of this name exists.
template <auto find>
bool test_exists(TemplateContext& context, const Value& value, const Arguments& arguments) {
  bind_arguments<0>(context, "this test", arguments, {});
  return value.is_string() && find(value.text()) != nullptr;
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as<bool>(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as<bool>(); }
bool is_integer(const Value& v) { return v.is<int64_t>(); }
bool is_float(const Value& v) { return v.is<double>(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_iterable(const Value& v) {  // Undefined runs over nothing
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
}
bool is_callable(const Value& v) { return v.is_callable(); }
bool is_escaped(const Value& v) { return v.is_safe(); }
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_indexable() || v.is_dict() || v.is_undefined();
}

constexpr TemplateTest kTests[] = {
    {"defined", test_value<is_defined>},
    {"undefined", test_value<is_undefined>},
    {"none", test_value<is_none>},
    {"boolean", test_value<is_boolean>},
    {"true", test_value<is_true>},
    {"false", test_value<is_false>},
    {"integer", test_value<is_integer>},
    {"float", test_value<is_float>},
    {"number", test_value<is_number>},
    {"string", test_value<is_string>},
    {"mapping", test_value<is_mapping>},
    {"sequence", test_value<is_sequence>},
    {"iterable", test_value<is_iterable>},
    {"callable", test_value<is_callable>},
    {"escaped", test_value<is_escaped>},
    {"upper", test_case<true>},
    {"lower", test_case<false>},
    {"filter", test_exists<find_template_filter>},
    {"test", test_exists<find_template_test>},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisible},
    {"sameas", test_same},
    {"in", test_against<BinaryOp::kIn>},
    {"eq", test_against<BinaryOp::kEqual>},
    {"equalto", test_against<BinaryOp::kEqual>},
    {"==", test_against<BinaryOp::kEqual>},
    {"ne", test_against<BinaryOp::kNotEqual>},
    {"!=", test_against<BinaryOp::kNotEqual>},
    {"lt", test_against<BinaryOp::kLess>},
    {"lessthan", test_against<BinaryOp::kLess>},
    {"<", test_against<BinaryOp::kLess>},
    {"le", test_against<BinaryOp::kLessEqual>},
    {"<=", test_against<BinaryOp::kLessEqual>},
    {"gt", test_against<BinaryOp::kGreater>},
    {"greaterthan", test_against<BinaryOp::kGreater>},
    {">", test_against<BinaryOp::kGreater>},
    {"ge", test_against<BinaryOp::kGreaterEqual>},
    {">=", test_against<BinaryOp::kGreaterEqual>},
};

}  // namespace

const TemplateTest* find_template_test(std::string_view name) {
  for (const TemplateTest& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace headrace
