// What may follow "|".
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "text/template/template_arithmetic.h"
#include "text/template/template_builtins.h"
#include "text/template/template_format.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {
namespace {

void expect_arguments(TemplateContext& context, bool present, std::string_view what) {
  if (!present) context.fail(fmt::format("{} is missing", what));
}

// Attributes of items: "a", "a.b", 0 or "a.0", as map, sort and the like take them.

Value attribute_of(TemplateContext& context, Value item, const Value& path) {
  if (path.is_integral()) return get_item(context, item, path);
  std::string_view rest = string_argument(context, "attribute", &path, "");
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = !name.empty() && error == std::errc() && end == name.data() + name.size();
    // The path's memory need not outlive the member, so a missing one goes without its name.
    item =
        get_item(context, item, is_index ? Value(index) : context.make_string(std::string(name)));
    if (dot == rest.npos) return item;
    rest.remove_prefix(dot + 1);
  }
}

// What sort, unique, min and max compare: the attribute, if any; strings without case by default.
struct Key {
  const Value* attribute;
  bool case_sensitive;

  Value of(TemplateContext& context, const Value& item) const {
    Value key = attribute == nullptr || attribute->is_none()
                    ? item
                    : attribute_of(context, item, *attribute);
    if (case_sensitive || !key.is_string()) return key;
    return context.make_string(to_lower(key.text()));
  }
};

// The items of `items` in the order of `keys`, stable.
std::vector<Value> sorted_by(TemplateContext& context, const std::vector<Value>& items,
                             const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? compare(context, keys[b], keys[a]) < 0
                   : compare(context, keys[a], keys[b]) < 0;
  });
  std::vector<Value> sorted;
  for (size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

// Strings.

template <std::string (*map)(std::string_view), bool keeps_safe = true>
Value map_string(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "this filter", arguments, {});
  const Value text = to_string(context, input);
  context.charge(text.text().size() / 64);
  Value mapped = context.make_string(map(text.text()));
  return keeps_safe && text.is_safe() ? mark_safe(std::move(mapped)) : mapped;
}

// The filter differs from str.title(): words begin after space, "-" and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  bool first = true;
  for (std::string_view c : characters(text)) {
    out += first ? to_upper(c) : to_lower(c);
    const Utf8Step step = utf8_step(c);
    first = step.state == Utf8State::kValid &&
            (is_python_space(step.code_point) || std::string_view("-({[<").find(c) != text.npos);
  }
  return out;
}

// What is safe stays as it is.
Value filter_escape(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "escape", arguments, {});
  return escape_string(context, to_string(context, input));
}
Value filter_forceescape(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "forceescape", arguments, {});
  return escape_string(context, plain_string(to_string(context, input)));
}
Value filter_safe(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "safe", arguments, {});
  return mark_safe(to_string(context, input));
}

// Filters that are a string's method of the same meaning.
Value call_method(TemplateContext& context, const Value& input, std::string_view name,
                  const Arguments& arguments) {
  const Value text = to_string(context, input);
  return find_template_method(text, name)->run(context, text, arguments);
}
Value filter_trim(TemplateContext& context, const Value& input, const Arguments& arguments) {
  return call_method(context, input, "strip", arguments);
}
Value filter_replace(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [old_text, new_text, count] =
      bind_arguments<3>(context, "replace", arguments, {"old", "new", "count"});
  expect_arguments(context, old_text != nullptr && new_text != nullptr, "replace: a string");
  Arguments texts;
  texts.positional = {to_string(context, *old_text), to_string(context, *new_text)};
  if (count != nullptr) texts.positional.push_back(*count);
  return call_method(context, plain_string(to_string(context, input)), "replace", texts);
}

Value filter_string(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "string", arguments, {});
  return to_string(context, input);
}

Value filter_indent(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [width, first, blank] =
      bind_arguments<3>(context, "indent", arguments, {"width", "first", "blank"});
  std::string indent;
  if (width != nullptr && width->is_string()) {
    indent = width->text();
  } else {
    const int64_t count = integer_argument(context, "width", width, 4);
    context.check_string_size(count < 0 ? 0 : static_cast<size_t>(count));
    indent.assign(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
  }
  const Value text = to_string(context, input);
  context.charge(text.text().size() / 16);
  const std::string closed = std::string(text.text()) + "\n";  // so that the last line may be empty
  const std::vector<std::string_view> lines = split_lines(closed);
  std::string out;
  if (truth_argument(first, false)) context.append(out, indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) context.append(out, "\n");
    if (i > 0 && (truth_argument(blank, false) || !lines[i].empty())) context.append(out, indent);
    context.append(out, lines[i]);
  }
  return context.make_string(std::move(out));
}

Value filter_format(TemplateContext& context, const Value& input, const Arguments& arguments) {
  if (!arguments.keyword.empty()) context.fail("format by name is not supported");
  const Value text = to_string(context, input);
  return format_percent(context, text.text(), arguments.positional);
}

Value filter_wordcount(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "wordcount", arguments, {});
  const Value words = call_method(context, input, "split", {});
  return static_cast<int64_t>(words.items().size());
}

Value filter_tojson(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [ascii, indent, separators, sort] = bind_arguments<4>(
      context, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat format;
  format.ensure_ascii = truth_argument(ascii, false);
  format.sort_keys = truth_argument(sort, false);
  if (indent != nullptr && !indent->is_none()) {
    const int64_t width = integer_argument(context, "indent", indent, 0);
    context.check_string_size(width < 0 ? 0 : static_cast<size_t>(width));
    format.indent = static_cast<int>(std::clamp<int64_t>(width, 0, 1 << 20));
    format.item_separator = ",";
  }
  if (separators != nullptr && !separators->is_none()) {
    if (!separators->is_plain_list() || separators->items().size() != 2) {
      context.fail("tojson: separators is not a pair");
    }
    format.item_separator = string_argument(context, "separators", &separators->items()[0], "");
    format.key_separator = string_argument(context, "separators", &separators->items()[1], "");
  }
  std::string out;
  append_json(context, input, format, out);
  return context.make_string(std::move(out));
}

// Any value.

Value filter_default(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [otherwise, boolean] =
      bind_arguments<2>(context, "default", arguments, {"default_value", "boolean"});
  const bool replace = input.is_undefined() || (truth_argument(boolean, false) && !input.truthy());
  if (!replace) return input;
  return otherwise != nullptr ? *otherwise : Value::view("");
}

Value filter_attr(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [name] = bind_arguments<1>(context, "attr", arguments, {"name"});
  expect_arguments(context, name != nullptr, "attr: the name");
  if (input.is_dict()) return Undefined{};  // keys are no attributes
  return get_item(context, input, *name);
}

// Numbers.

std::optional<double> parse_real(std::string_view text) {
  text = python_strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text[0] == '-') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = python_strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool prefixed =
      text.size() > 2 && text[0] == '0' &&
      ((base == 16 && (text[1] | 32) == 'x') || (base == 8 && (text[1] | 32) == 'o') ||
       (base == 2 && (text[1] | 32) == 'b'));
  if (prefixed) text.remove_prefix(2);
  if (text.empty() || text[0] == '-') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<int64_t> truncate(double real) {
  if (!(std::fabs(real) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(real);
}

Value filter_int(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [otherwise, base] = bind_arguments<2>(context, "int", arguments, {"default", "base"});
  const int64_t radix = integer_argument(context, "base", base, 10);
  std::optional<int64_t> value;
  if (input.is_integral()) {
    value = input.integer();
  } else if (input.is<double>()) {
    value = truncate(input.real());
  } else if (input.is_string()) {
    context.charge_bytes(input.text().size());
    if (radix >= 2 && radix <= 36) value = parse_integer(input.text(), static_cast<int>(radix));
    if (!value) {
      const std::optional<double> real = parse_real(input.text());
      if (real) value = truncate(*real);
    }
  }
  if (value) return *value;
  return otherwise != nullptr ? *otherwise : Value(int64_t{0});
}

Value filter_float(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [otherwise] = bind_arguments<1>(context, "float", arguments, {"default"});
  if (input.is_number()) return input.real();
  if (input.is_string()) {
    const std::optional<double> real = parse_real(input.text());
    if (real) return *real;
  }
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value filter_abs(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "abs", arguments, {});
  if (input.is_integral() && input.integer() >= 0) return input.integer();
  if (input.is<double>()) return std::fabs(input.real());
  return apply_sign(context, ast::UnaryOp::kMinus, input);
}

double round_real(double value, int64_t precision, std::string_view method) {
  if (method == "common" && precision >= 0) {
    // printf rounds the exact value, ties to even, as Python's round() does.
    if (precision > 300 || !std::isfinite(value)) return value;
    return *parse_real(fmt::format("{:.{}f}", value, precision));
  }
  // 10^-309 and less are no normal doubles: every finite value is nearer to 0.
  if (precision < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(precision, 308)));
  const double scaled = value * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return rounded / scale;
}

// To a multiple of 10^digits, ties to the even one, as Python rounds whole numbers. Empty beyond
// int64.
std::optional<int64_t> round_integer(int64_t value, int64_t digits) {
  constexpr int64_t kHalf = 5'000'000'000'000'000'000;  // of 10^19, which is beyond int64
  if (digits == 19 && (value > kHalf || value < -kHalf)) return std::nullopt;
  if (digits > 18) return 0;
  int64_t step = 1;
  for (int64_t i = 0; i < digits; ++i) step *= 10;
  const int64_t rest = ((value % step) + step) % step;
  int64_t down = 0, rounded = 0;
  if (__builtin_sub_overflow(value, rest, &down)) return std::nullopt;
  const bool up = rest > step - rest || (rest == step - rest && down / step % 2 != 0);
  if (__builtin_add_overflow(down, up ? step : 0, &rounded)) return std::nullopt;
  return rounded;
}

Value filter_round(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [precision, method] =
      bind_arguments<2>(context, "round", arguments, {"precision", "method"});
  const int64_t digits = integer_argument(context, "precision", precision, 0);
  const std::string_view name = string_argument(context, "method", method, "common");
  if (name != "common" && name != "ceil" && name != "floor") {
    context.fail("round: method is not common, ceil or floor");
  }
  if (!input.is_number()) context.fail(fmt::format("'{}' cannot be rounded", input.type_name()));
  if (input.is_integral() && name == "common") {
    if (digits >= 0) return input.integer();
    const auto rounded = round_integer(input.integer(), digits < -20 ? 20 : -digits);
    if (!rounded) context.fail("round: the result does not fit 64 bits");
    return *rounded;
  }
  return round_real(input.real(), digits, name);
}

// Sequences.

Value filter_length(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "length", arguments, {});
  if (input.is_string()) {
    context.charge_bytes(input.text().size());
    // Bytes that are no UTF-8 count one each, so plain counting will not do.
    const size_t valid = valid_utf8_prefix(input.text());
    if (valid == input.text().size()) return static_cast<int64_t>(count_code_points(input.text()));
    return static_cast<int64_t>(characters(input.text()).size());
  }
  if (input.is_kind(ListKind::kIterator)) context.fail("a generator has no length");
  return static_cast<int64_t>(input.is_dict() ? input.entries().size()
                                              : iterate(context, input)->items.size());
}

Value filter_first(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "first", arguments, {});
  const Value::List items = iterate(context, input);
  return items->items.empty() ? Value() : items->items.front();
}

Value filter_last(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "last", arguments, {});
  if (input.is_kind(ListKind::kIterator)) context.fail("a generator has no last item");
  const Value::List items = iterate(context, input);
  return items->items.empty() ? Value() : items->items.back();
}

Value filter_list(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "list", arguments, {});
  return context.make_list(iterate(context, input)->items);
}

Value filter_items(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "items", arguments, {});
  if (input.is_undefined()) return context.make_list({}, ListKind::kIterator);
  if (!input.is_dict()) context.fail(fmt::format("'{}' has no items", input.type_name()));
  const Value items = find_template_method(input, "items")->run(context, input, {});
  return context.make_list(items.items(), ListKind::kIterator);
}

Value filter_join(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [separator, attribute] =
      bind_arguments<2>(context, "join", arguments, {"d", "attribute"});
  const Value between = separator != nullptr ? to_string(context, *separator) : Value::view("");
  std::string out;
  bool first = true;
  for (const Value& item : each(context, input)) {
    context.charge(1);
    if (!std::exchange(first, false)) context.append(out, between.text());
    const bool whole = attribute == nullptr || attribute->is_none();
    append_string(context, whole ? item : attribute_of(context, item, *attribute), out);
  }
  return context.make_string(std::move(out));
}

Value filter_reverse(TemplateContext& context, const Value& input, const Arguments& arguments) {
  bind_arguments<0>(context, "reverse", arguments, {});
  std::vector<Value> items = iterate(context, input)->items;
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return context.make_list(std::move(items), ListKind::kIterator);
  std::string text;
  for (const Value& item : items) text.append(item.text());
  return context.make_string(std::move(text));
}

Value filter_sort(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [reverse, case_sensitive, attribute] =
      bind_arguments<3>(context, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Key key{attribute, truth_argument(case_sensitive, false)};
  const Value::List items = iterate(context, input);
  std::vector<Value> keys;
  for (const Value& item : items->items) keys.push_back(key.of(context, item));
  return context.make_list(sorted_by(context, items->items, keys, truth_argument(reverse, false)));
}

Value filter_dictsort(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [case_sensitive, by, reverse] =
      bind_arguments<3>(context, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view what = string_argument(context, "by", by, "key");
  if (what != "key" && what != "value") context.fail("dictsort: by is not key or value");
  if (!input.is_dict()) context.fail(fmt::format("'{}' has no items", input.type_name()));
  const Key key{nullptr, truth_argument(case_sensitive, false)};
  const Value items = find_template_method(input, "items")->run(context, input, {});
  std::vector<Value> keys;
  for (const Value& item : items.items()) {
    keys.push_back(key.of(context, item.items()[what == "key" ? 0 : 1]));
  }
  return context.make_list(sorted_by(context, items.items(), keys, truth_argument(reverse, false)));
}

Value filter_unique(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [case_sensitive, attribute] =
      bind_arguments<2>(context, "unique", arguments, {"case_sensitive", "attribute"});
  const Key key{attribute, truth_argument(case_sensitive, false)};
  std::vector<Value> unique, seen;
  for (const Value& item : each(context, input)) {
    Value item_key = key.of(context, item);
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(context, other, item_key);
    });
    if (known) continue;
    seen.push_back(std::move(item_key));
    unique.push_back(item);
  }
  return context.make_list(std::move(unique), ListKind::kIterator);
}

template <bool largest>
Value filter_extreme(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [case_sensitive, attribute] = bind_arguments<2>(
      context, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Key key{attribute, truth_argument(case_sensitive, false)};
  Value best, best_key;
  bool first = true;
  for (const Value& item : each(context, input)) {
    Value item_key = key.of(context, item);
    if (!std::exchange(first, false)) {
      const int order = compare(context, item_key, best_key);
      if (largest ? order <= 0 : order >= 0) continue;
    }
    best = item;
    best_key = std::move(item_key);
  }
  return best;
}

Value filter_sum(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [attribute, start] =
      bind_arguments<2>(context, "sum", arguments, {"attribute", "start"});
  Value total = start != nullptr ? *start : Value(int64_t{0});
  for (const Value& item : each(context, input)) {
    const bool whole = attribute == nullptr || attribute->is_none();
    const Value term = whole ? item : attribute_of(context, item, *attribute);
    context.charge(1);
    total = apply_arithmetic(context, ast::BinaryOp::kAdd, total, term);
  }
  return total;
}

Value filter_batch(TemplateContext& context, const Value& input, const Arguments& arguments) {
  const auto [count, fill] =
      bind_arguments<2>(context, "batch", arguments, {"linecount", "fill_with"});
  const int64_t size = integer_argument(context, "linecount", count, 0);
  if (size < 1) context.fail("batch: linecount is not positive");
  std::vector<Value> batches, batch;
  const auto close = [&] { batches.push_back(context.make_list(std::exchange(batch, {}))); };
  for (const Value& item : each(context, input)) {
    if (static_cast<int64_t>(batch.size()) == size) close();
    batch.push_back(item);
  }
  if (batch.empty()) return context.make_list(std::move(batches), ListKind::kIterator);
  while (fill != nullptr && !fill->is_none() && static_cast<int64_t>(batch.size()) < size) {
    context.charge(1);
    batch.push_back(*fill);
  }
  close();
  return context.make_list(std::move(batches), ListKind::kIterator);
}

// Filters that take a filter or a test by name. They run over nothing for none, 0 and false.

ItemRange each_of_true(TemplateContext& context, const Value& value) {
  return each(context, value.truthy() ? value : Value());
}

Value filter_map(TemplateContext& context, const Value& input, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    const auto [attribute, otherwise] =
        bind_arguments<2>(context, "map", arguments, {"attribute", "default"});
    expect_arguments(context, attribute != nullptr, "map: the filter or attribute");
    for (const Value& item : each_of_true(context, input)) {
      context.charge(1);
      Value value = attribute_of(context, item, *attribute);
      const bool replace = value.is_undefined() && otherwise != nullptr;
      mapped.push_back(replace ? *otherwise : std::move(value));
    }
    return context.make_list(std::move(mapped), ListKind::kIterator);
  }
  const std::string_view name = string_argument(context, "filter", &arguments.positional[0], "");
  const TemplateFilter* filter = find_template_filter(name);
  if (filter == nullptr) context.fail("map: the filter is not supported");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : each_of_true(context, input)) {
    context.charge(1);
    mapped.push_back(filter->run(context, item, rest));
  }
  return context.make_list(std::move(mapped), ListKind::kIterator);
}

// select, reject: items for which a test holds (or that are true); the attr forms test a member.
template <bool wanted, bool by_attribute>
Value filter_select(TemplateContext& context, const Value& input, const Arguments& arguments) {
  Arguments rest = arguments;
  Value attribute;
  const auto take = [&] {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  if (by_attribute) {
    expect_arguments(context, !rest.positional.empty(), "selectattr: the attribute");
    attribute = take();
  }
  const TemplateTest* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take();
    test = find_template_test(string_argument(context, "test", &name, ""));
    if (test == nullptr) context.fail("select: the test is not supported");
  }
  std::vector<Value> selected;
  for (const Value& item : each_of_true(context, input)) {
    context.charge(1);
    const Value value = by_attribute ? attribute_of(context, item, attribute) : item;
    const bool holds = test != nullptr ? test->run(context, value, rest) : value.truthy();
    if (holds == wanted) selected.push_back(item);
  }
  return context.make_list(std::move(selected), ListKind::kIterator);
}

constexpr TemplateFilter kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"capitalize", map_string<capitalize>},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", map_string<to_lower>},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", map_string<title_words, false>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", map_string<to_upper>},
    {"wordcount", filter_wordcount},
};

}  // namespace

const TemplateFilter* find_template_filter(std::string_view name) {
  for (const TemplateFilter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace headrace
