#include "text/template/template_arithmetic.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "text/template/template_format.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {
namespace {

using ast::BinaryOp;

std::string_view symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    default:
      return "**";
  }
}

// `value` is what the operation beside it writes, so it is taken by reference.
int64_t checked(TemplateContext& context, bool overflow, const int64_t& value) {
  if (overflow) context.fail("the result is not a 64-bit integer");
  return value;
}

Value integer_power(TemplateContext& context, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) context.fail("division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  bool overflow = false;
  while (exponent > 0 && !overflow) {
    if (exponent & 1) overflow |= __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0) overflow |= __builtin_mul_overflow(base, base, &base);
  }
  return checked(context, overflow, result);
}

Value integer_arithmetic(TemplateContext& context, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return checked(context, __builtin_add_overflow(a, b, &result), result);
    case BinaryOp::kSubtract:
      return checked(context, __builtin_sub_overflow(a, b, &result), result);
    case BinaryOp::kMultiply:
      return checked(context, __builtin_mul_overflow(a, b, &result), result);
    case BinaryOp::kPower:
      return integer_power(context, a, b);
    default:
      break;
  }
  if (b == 0) context.fail("division by zero");
  if (op == BinaryOp::kDivide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) {  // INT64_MIN / -1 does not fit
    if (op == BinaryOp::kModulo) return int64_t{0};
    return checked(context, __builtin_sub_overflow(int64_t{0}, a, &result), result);
  }
  const int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);  // Python rounds down
  if (op == BinaryOp::kModulo) return adjust ? remainder + b : remainder;
  return adjust ? a / b - 1 : a / b;
}

Value real_arithmetic(TemplateContext& context, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSubtract:
      return a - b;
    case BinaryOp::kMultiply:
      return a * b;
    case BinaryOp::kPower:
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) context.fail("division by zero");
  if (op == BinaryOp::kDivide) return a / b;
  if (op == BinaryOp::kFloorDivide) return std::floor(a / b);
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Value repeat_string(TemplateContext& context, std::string_view text, int64_t count) {
  if (count <= 0 || text.empty()) return Value::view("");
  const size_t size_max = context.limits().output_bytes_max;
  if (static_cast<uint64_t>(count) > size_max / text.size())
    context.check_string_size(size_max + 1);
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out.append(text);
  return context.make_string(std::move(out));
}

Value repeat_list(TemplateContext& context, const Value& list, int64_t count) {
  const std::vector<Value>& items = list.items();
  std::vector<Value> out;
  for (int64_t i = 0; i < count && !items.empty(); ++i) {
    context.charge(items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return context.make_list(std::move(out), list.as<Value::List>()->kind);
}

// A safe string escapes what is added to it on either side.
Value add_strings(TemplateContext& context, const Value& a, const Value& b) {
  if (a.is_safe() != b.is_safe()) {
    return add_strings(context, escape_string(context, a), escape_string(context, b));
  }
  context.check_string_size(a.text().size() + b.text().size());
  Value sum = context.make_string(std::string(a.text()).append(b.text()));
  return a.is_safe() ? mark_safe(std::move(sum)) : sum;
}

Value join_lists(TemplateContext& context, const Value& a, const Value& b) {
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return context.make_list(std::move(items), a.as<Value::List>()->kind);
}

// Python's rules for slice bounds: from the end if negative, clamped to the sequence.
int64_t clamp_bound(TemplateContext& context, const Value& bound, int64_t otherwise, int64_t size,
                    int64_t low, int64_t high) {
  if (bound.is_undefined() || bound.is_none()) return otherwise;
  if (!bound.is_integral()) context.fail("slice bounds are integers");
  int64_t value = bound.integer();
  if (value < 0) value = value < -size ? low : value + size;
  return std::clamp(value, low, high);
}

}  // namespace

Value apply_arithmetic(TemplateContext& context, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kModulo && a.is_string()) {
    const bool tuple = b.is_kind(ListKind::kTuple);
    return format_percent(context, a.text(), tuple ? b.items() : std::vector<Value>{b});
  }
  if (a.is_undefined() || b.is_undefined()) {
    const Undefined& undefined = (a.is_undefined() ? a : b).as<Undefined>();
    context.fail(fmt::format("'{}' is undefined", undefined.name));
  }
  if (a.is_integral() && b.is_integral()) {
    return integer_arithmetic(context, op, a.integer(), b.integer());
  }
  if (a.is_number() && b.is_number()) return real_arithmetic(context, op, a.real(), b.real());
  if (op == BinaryOp::kAdd && a.is_string() && b.is_string()) {
    return add_strings(context, a, b);
  }
  const bool lists =
      a.is_plain_list() && b.is_list() && a.as<Value::List>()->kind == b.as<Value::List>()->kind;
  if (op == BinaryOp::kAdd && lists) return join_lists(context, a, b);
  if (op == BinaryOp::kMultiply) {
    if (a.is_string() && b.is_integral()) return repeat_string(context, a.text(), b.integer());
    if (a.is_integral() && b.is_string()) return repeat_string(context, b.text(), a.integer());
    if (a.is_plain_list() && b.is_integral()) return repeat_list(context, a, b.integer());
    if (a.is_integral() && b.is_plain_list()) return repeat_list(context, b, a.integer());
  }
  context.fail(
      fmt::format("'{}' does not go with '{}' and '{}'", symbol(op), a.type_name(), b.type_name()));
}

bool apply_comparison(TemplateContext& context, BinaryOp op, const Value& a, const Value& b) {
  switch (op) {
    case BinaryOp::kEqual:
      return equal(context, a, b);
    case BinaryOp::kNotEqual:
      return !equal(context, a, b);
    case BinaryOp::kIn:
      return contains(context, b, a);
    case BinaryOp::kNotIn:
      return !contains(context, b, a);
    default:
      break;
  }
  // NaN has no order: every comparison with it is false.
  if (a.is_number() && b.is_number() && (std::isnan(a.real()) || std::isnan(b.real())))
    return false;
  const int order = compare(context, a, b);
  switch (op) {
    case BinaryOp::kLess:
      return order < 0;
    case BinaryOp::kLessEqual:
      return order <= 0;
    case BinaryOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Value apply_sign(TemplateContext& context, ast::UnaryOp op, const Value& value) {
  if (value.is_integral()) {
    if (op == ast::UnaryOp::kPlus) return value.integer();
    return integer_arithmetic(context, BinaryOp::kSubtract, 0, value.integer());
  }
  if (value.is<double>()) return op == ast::UnaryOp::kPlus ? value.real() : -value.real();
  context.fail(fmt::format("'{}' has no sign", value.type_name()));
}

Value slice(TemplateContext& context, const Value& object, const Value& start, const Value& stop,
            const Value& step_value) {
  if (!object.is_string() && !object.is_indexable()) {
    if (object.is_undefined())
      context.fail(fmt::format("'{}' is undefined", object.as<Undefined>().name));
    return Undefined{};
  }
  int64_t step = 1;
  if (!step_value.is_undefined() && !step_value.is_none()) {
    if (!step_value.is_integral()) context.fail("slice bounds are integers");
    step = step_value.integer();
  }
  if (step == 0) context.fail("the step of a slice is 0");
  const Value::List all = iterate(context, object);
  const int64_t size = static_cast<int64_t>(all->items.size());
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const int64_t first = clamp_bound(context, start, step > 0 ? low : high, size, low, high);
  const int64_t last = clamp_bound(context, stop, step > 0 ? high : low, size, low, high);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t span = static_cast<uint64_t>(step > 0 ? std::max<int64_t>(last - first, 0)
                                                       : std::max<int64_t>(first - last, 0));
  const uint64_t count = span == 0 ? 0 : (span - 1) / stride + 1;
  std::vector<Value> items;
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t at = first + static_cast<int64_t>(i) * step;
    items.push_back(all->items[static_cast<size_t>(at)]);
  }
  if (object.is_list()) {
    return context.make_list(std::move(items), object.as<Value::List>()->kind);
  }
  std::string text;
  for (const Value& item : items) text.append(item.text());
  Value result = context.make_string(std::move(text));
  return object.is_safe() ? mark_safe(std::move(result)) : result;
}

}  // namespace headrace
