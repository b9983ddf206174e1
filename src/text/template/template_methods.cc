// Methods of strings, lists and dicts, and the global functions.
#include <algorithm>
#include <ctime>

#include <fmt/core.h>

#include "text/template/template_builtins.h"
#include "text/template/template_eval.h"
#include "text/template/template_format.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {
namespace {

using Receiver = TemplateMethod::Receiver;

// A part of a string, sharing its memory.
Value part(const Value& string, std::string_view text) {
  return StringValue{text, string.as<StringValue>().owner, string.is_safe()};
}

bool has_character(std::string_view set, std::string_view character) {
  return find_text(set, character, 0) != set.npos;
}

std::string_view strip_left(std::string_view text, const Value* set) {
  if (set == nullptr || set->is_none()) return python_lstrip(text);
  while (!text.empty()) {
    const size_t length = utf8_step(text).length;
    if (!has_character(set->text(), text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  return text;
}

std::string_view strip_right(std::string_view text, const Value* set) {
  if (set == nullptr || set->is_none()) return python_rstrip(text);
  const std::vector<std::string_view> all = characters(text);
  size_t keep = all.size();
  while (keep > 0 && has_character(set->text(), all[keep - 1])) --keep;
  return keep == 0 ? std::string_view()
                   : text.substr(0, all[keep - 1].data() + all[keep - 1].size() - text.data());
}

enum class Side { kLeft, kRight, kBoth };
template <Side side>
Value strip(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [set] = bind_arguments<1>(context, "strip", arguments, {"chars"});
  if (set != nullptr && !set->is_none() && !set->is_string())
    context.fail("strip() needs a string");
  std::string_view text = self.text();
  // Each character of the text may be sought in the whole set.
  context.charge_bytes(text.size() *
                       (set != nullptr && set->is_string() ? 1 + set->text().size() : 1));
  if (side != Side::kRight) text = strip_left(text, set);
  if (side != Side::kLeft) text = strip_right(text, set);
  return part(self, text);
}

template <std::string (*map)(std::string_view)>
Value map_text(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "this method", arguments, {});
  context.charge(self.text().size() / 64);
  Value mapped = context.make_string(map(self.text()));
  return self.is_safe() ? mark_safe(std::move(mapped)) : mapped;
}

template <bool (*property)(char32_t)>
Value all_characters(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "this method", arguments, {});
  context.charge(self.text().size() / 64);
  const std::vector<std::string_view> all = characters(self.text());
  return !all.empty() && std::all_of(all.begin(), all.end(), [](std::string_view c) {
    const Utf8Step step = utf8_step(c);
    return step.state == Utf8State::kValid && property(step.code_point);
  });
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_decimal(c); }

// isupper() and islower(): at least one letter with case, and none of the other case.
template <bool (*wanted)(char32_t), bool (*refused)(char32_t)>
Value has_case(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "this method", arguments, {});
  context.charge(self.text().size() / 64);
  bool found = false;
  for (std::string_view c : characters(self.text())) {
    const Utf8Step step = utf8_step(c);
    if (step.state != Utf8State::kValid) continue;
    if (refused(step.code_point)) return false;
    found |= wanted(step.code_point);
  }
  return found;
}

std::vector<Value> split_at_spaces(const Value& self, int64_t splits_max) {
  std::vector<Value> parts;
  std::string_view rest = python_lstrip(self.text());
  while (!rest.empty()) {
    size_t end = 0;
    if (splits_max == static_cast<int64_t>(parts.size())) {
      end = python_rstrip(rest).size();
      parts.push_back(part(self, rest.substr(0, end)));
      break;
    }
    while (end < rest.size()) {
      const Utf8Step step = utf8_step(rest.substr(end));
      if (step.state == Utf8State::kValid && is_python_space(step.code_point)) break;
      end += step.length;
    }
    parts.push_back(part(self, rest.substr(0, end)));
    rest = python_lstrip(rest.substr(end));
  }
  return parts;
}

std::vector<Value> split_at(const Value& self, std::string_view separator, int64_t splits_max) {
  std::vector<Value> parts;
  const std::string_view text = self.text();
  size_t begin = 0;
  while (splits_max != static_cast<int64_t>(parts.size())) {
    const size_t at = find_text(text, separator, begin);
    if (at == text.npos) break;
    parts.push_back(part(self, text.substr(begin, at - begin)));
    begin = at + separator.size();
  }
  parts.push_back(part(self, text.substr(begin)));
  return parts;
}

// From the right: the whole split, whose first parts are joined again.
std::vector<Value> split_at_last(const Value& self, std::string_view separator,
                                 int64_t splits_max) {
  std::vector<Value> parts = split_at(self, separator, -1);
  if (splits_max < 0 || static_cast<int64_t>(parts.size()) <= splits_max + 1) return parts;
  const size_t joined = parts.size() - static_cast<size_t>(splits_max);
  const std::string_view last = parts[joined - 1].text();
  const char* begin = self.text().data();
  const size_t length = static_cast<size_t>(last.data() + last.size() - begin);
  parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(joined));
  parts.insert(parts.begin(), part(self, self.text().substr(0, length)));
  return parts;
}

template <bool from_right>
Value split(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [separator, count] =
      bind_arguments<2>(context, "split", arguments, {"sep", "maxsplit"});
  const int64_t splits_max = integer_argument(context, "maxsplit", count, -1);
  context.charge(self.text().size() / 16);
  if (separator == nullptr || separator->is_none()) {
    if (from_right && splits_max >= 0) context.fail("rsplit() with a count needs a separator");
    return context.make_list(split_at_spaces(self, splits_max));
  }
  const std::string_view text = string_argument(context, "sep", separator, "");
  if (text.empty()) context.fail("the separator is empty");
  return context.make_list(from_right ? split_at_last(self, text, splits_max)
                                      : split_at(self, text, splits_max));
}

Value splitlines(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "splitlines", arguments, {});
  context.charge(self.text().size() / 16);
  std::vector<Value> lines;
  for (std::string_view line : split_lines(self.text())) lines.push_back(part(self, line));
  return context.make_list(std::move(lines));
}

template <bool at_end>
Value has_affix(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [affix] =
      bind_arguments<1>(context, at_end ? "endswith" : "startswith", arguments, {"affix"});
  if (affix == nullptr) context.fail("startswith() and endswith() need an argument");
  const std::string_view text = self.text();
  const auto matches = [&](const Value& value) {
    if (!value.is_string()) context.fail("startswith() and endswith() need strings");
    context.charge_bytes(value.text().size());
    return at_end ? text.ends_with(value.text()) : text.starts_with(value.text());
  };
  if (!affix->is_kind(ListKind::kTuple)) return matches(*affix);
  context.charge(affix->items().size());
  return std::any_of(affix->items().begin(), affix->items().end(), matches);
}

template <bool at_end>
Value remove_affix(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [affix] = bind_arguments<1>(context, "removeprefix", arguments, {"affix"});
  const std::string_view gone = string_argument(context, "affix", affix, "");
  std::string_view text = self.text();
  if (at_end && text.ends_with(gone)) text.remove_suffix(gone.size());
  if (!at_end && text.starts_with(gone)) text.remove_prefix(gone.size());
  return part(self, text);
}

Value replace(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [old_text, new_text, count] =
      bind_arguments<3>(context, "replace", arguments, {"old", "new", "count"});
  if (old_text == nullptr || new_text == nullptr) context.fail("replace() needs two strings");
  const std::string_view text = self.text(), from = string_argument(context, "old", old_text, ""),
                         to = string_argument(context, "new", new_text, "");
  int64_t left = integer_argument(context, "count", count, -1);
  std::string out;
  size_t at = 0;
  while (left != 0) {
    const size_t found = find_text(text, from, at);
    if (found == text.npos) break;
    context.append(out, text.substr(at, found - at));
    context.append(out, to);
    context.charge(1);
    at = found + from.size();
    if (left > 0) --left;
    if (!from.empty()) continue;
    if (at == text.size()) break;
    const size_t length = utf8_step(text.substr(at)).length;  // "" is found before each character
    context.append(out, text.substr(at, length));
    at += length;
  }
  context.append(out, text.substr(at));
  return context.make_string(std::move(out));
}

// find, rfind, index: in characters; -1 where there is none.
template <bool last>
Value find(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [needle] = bind_arguments<1>(context, "find", arguments, {"sub"});
  if (needle == nullptr) context.fail("find() needs a string");
  const std::string_view text = self.text(), sought = string_argument(context, "sub", needle, "");
  context.charge_bytes(text.size());
  size_t found = find_text(text, sought, 0);
  if (last && sought.empty()) found = text.size();
  while (last && found < text.size()) {
    context.charge(1);
    const size_t next = find_text(text, sought, found + 1);
    if (next == text.npos) break;
    found = next;
  }
  if (found == text.npos) return int64_t{-1};
  return static_cast<int64_t>(characters(text.substr(0, found)).size());
}

template <bool last>
Value index_text(TemplateContext& context, const Value& self, const Arguments& arguments) {
  Value found = find<last>(context, self, arguments);
  if (found.integer() < 0) context.fail("the substring is not found");
  return found;
}

// Before, the separator, after.
template <bool last>
Value partition(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [separator] = bind_arguments<1>(context, "partition", arguments, {"sep"});
  if (separator == nullptr || !separator->is_string() || separator->text().empty()) {
    context.fail("partition() needs a separator");
  }
  context.charge(self.text().size() / 16);
  Arguments once;
  once.positional = {*separator, Value(int64_t{1})};
  std::vector<Value> parts = split<last>(context, self, once).items();
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, *separator);
  } else {
    parts.insert(last ? parts.begin() : parts.end(), 2, Value::view(""));
  }
  return context.make_list(std::move(parts), ListKind::kTuple);
}

Value format_text(TemplateContext& context, const Value& self, const Arguments& arguments) {
  if (self.is_safe()) context.fail("format() of a safe string is not supported");
  return format_braces(context, self.text(), arguments);
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::string_view c : characters(text)) {
    const Utf8Step step = utf8_step(c);
    const bool upper = step.state == Utf8State::kValid && is_upper(step.code_point);
    out += upper ? to_lower(c) : to_upper(c);
  }
  return out;
}

Value count_text(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [needle] = bind_arguments<1>(context, "count", arguments, {"sub"});
  if (needle == nullptr) context.fail("count() needs a string");
  const std::string_view text = self.text(), sought = string_argument(context, "sub", needle, "");
  context.charge(text.size() / 16);
  if (sought.empty()) return static_cast<int64_t>(characters(text).size() + 1);
  int64_t count = 0;
  for (size_t at = find_text(text, sought, 0); at != text.npos;
       at = find_text(text, sought, at + sought.size())) {
    ++count;
  }
  return count;
}

Value join(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [items] = bind_arguments<1>(context, "join", arguments, {"iterable"});
  if (items == nullptr) context.fail("join() needs a list");
  std::string out;
  bool first = true;
  for (const Value& item : each(context, *items)) {
    if (!item.is_string())
      context.fail(fmt::format("join() needs strings, not {}", item.type_name()));
    if (!std::exchange(first, false)) context.append(out, self.text());
    context.append(out, item.text());
  }
  return context.make_string(std::move(out));
}

template <bool right>
Value justify(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [width, fill] =
      bind_arguments<2>(context, "justify", arguments, {"width", "fillchar"});
  const int64_t wanted = integer_argument(context, "width", width, 0);
  const std::string_view filler = string_argument(context, "fillchar", fill, " ");
  if (characters(filler).size() != 1) context.fail("the fill character is not one character");
  context.charge(self.text().size() / 16);
  const int64_t missing = wanted - static_cast<int64_t>(characters(self.text()).size());
  if (missing <= 0) return self;
  const size_t size_max = context.limits().output_bytes_max;
  context.check_string_size(static_cast<size_t>(missing) > size_max ? size_max + 1 : 0);
  std::string padding;
  for (int64_t i = 0; i < missing; ++i) padding.append(filler);
  return context.make_string(right ? padding.append(self.text())
                                   : std::string(self.text()) + padding);
}

// Zeros on the left, behind a sign.
Value zfill(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [width] = bind_arguments<1>(context, "zfill", arguments, {"width"});
  const std::string_view text = self.text();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  Arguments padding;
  padding.positional = {
      Value(integer_argument(context, "width", width, 0) - static_cast<int64_t>(has_sign)),
      Value::view("0")};
  const Value digits = part(self, text.substr(has_sign ? 1 : 0));
  const Value padded = justify<true>(context, digits, padding);
  return context.make_string(std::string(text.substr(0, has_sign ? 1 : 0)).append(padded.text()));
}

// Dicts.

Value dict_get(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = bind_arguments<2>(context, "get", arguments, {"key", "default"});
  if (key == nullptr) context.fail("get() needs a key");
  const Value* entry = find_entry(context, *self.as<Value::Dict>(), *key);
  if (entry != nullptr) return *entry;
  return otherwise != nullptr ? *otherwise : Value(None{});
}

Value dict_items(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "items", arguments, {});
  context.charge(self.entries().size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries())
    items.push_back(context.make_list({key, value}, ListKind::kTuple));
  return context.make_list(std::move(items), ListKind::kItems);
}

Value dict_keys(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "keys", arguments, {});
  return context.make_list(iterate(context, self)->items, ListKind::kKeys);
}

Value dict_values(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.entries()) values.push_back(value);
  return context.make_list(std::move(values), ListKind::kValues);
}

Value copy(TemplateContext& context, const Value& self, const Arguments& arguments) {
  bind_arguments<0>(context, "copy", arguments, {});
  return self;  // values never change, so a copy cannot be told from the original
}

// Lists.

Value list_index(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [sought] = bind_arguments<1>(context, "index", arguments, {"value"});
  if (sought == nullptr) context.fail("index() needs a value");
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (equal(context, self.items()[i], *sought)) return static_cast<int64_t>(i);
  }
  context.fail("the value is not in the list");
}

Value list_count(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const auto [sought] = bind_arguments<1>(context, "count", arguments, {"value"});
  if (sought == nullptr) context.fail("count() needs a value");
  int64_t count = 0;
  for (const Value& item : self.items()) count += equal(context, item, *sought);
  return count;
}

Value loop_cycle(TemplateContext& context, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) context.fail("cycle() needs values");
  return arguments.positional[self.as<const TemplateLoop*>()->index % arguments.positional.size()];
}

Value loop_changed(TemplateContext& context, const Value& self, const Arguments& arguments) {
  const TemplateLoop& loop = *self.as<const TemplateLoop*>();
  Value now = context.make_list(arguments.positional, ListKind::kTuple);
  if (equal(context, loop.last_changed, now)) return false;
  loop.last_changed = std::move(now);
  return true;
}

constexpr TemplateMethod kMethods[] = {
    {Receiver::kString, "strip", strip<Side::kBoth>},
    {Receiver::kString, "lstrip", strip<Side::kLeft>},
    {Receiver::kString, "rstrip", strip<Side::kRight>},
    {Receiver::kString, "upper", map_text<to_upper>},
    {Receiver::kString, "lower", map_text<to_lower>},
    {Receiver::kString, "title", map_text<title_case>},
    {Receiver::kString, "capitalize", map_text<capitalize>},
    {Receiver::kString, "isdigit", all_characters<is_decimal>},
    {Receiver::kString, "isalpha", all_characters<is_letter>},
    {Receiver::kString, "isalnum", all_characters<is_alphanumeric>},
    {Receiver::kString, "isspace", all_characters<is_python_space>},
    {Receiver::kString, "isupper", has_case<is_upper, is_lower>},
    {Receiver::kString, "islower", has_case<is_lower, is_upper>},
    {Receiver::kString, "format", format_text},
    {Receiver::kString, "partition", partition<false>},
    {Receiver::kString, "rpartition", partition<true>},
    {Receiver::kString, "zfill", zfill},
    {Receiver::kString, "swapcase", map_text<swap_case>},
    {Receiver::kString, "index", index_text<false>},
    {Receiver::kString, "rindex", index_text<true>},
    {Receiver::kString, "isdecimal", all_characters<is_decimal>},
    {Receiver::kString, "split", split<false>},
    {Receiver::kString, "rsplit", split<true>},
    {Receiver::kString, "splitlines", splitlines},
    {Receiver::kString, "startswith", has_affix<false>},
    {Receiver::kString, "endswith", has_affix<true>},
    {Receiver::kString, "removeprefix", remove_affix<false>},
    {Receiver::kString, "removesuffix", remove_affix<true>},
    {Receiver::kString, "replace", replace},
    {Receiver::kString, "find", find<false>},
    {Receiver::kString, "rfind", find<true>},
    {Receiver::kString, "count", count_text},
    {Receiver::kString, "join", join},
    {Receiver::kString, "ljust", justify<false>},
    {Receiver::kString, "rjust", justify<true>},
    {Receiver::kDict, "get", dict_get},
    {Receiver::kDict, "items", dict_items},
    {Receiver::kDict, "keys", dict_keys},
    {Receiver::kDict, "values", dict_values},
    {Receiver::kDict, "copy", copy},
    {Receiver::kList, "copy", copy},
    {Receiver::kList, "index", list_index},
    {Receiver::kList, "count", list_count},
    {Receiver::kLoop, "cycle", loop_cycle},
    {Receiver::kLoop, "changed", loop_changed},
};

// Functions.

// As the sandbox of Jinja bounds it.
constexpr int64_t kRangeMax = 100'000;

Value range(TemplateContext& context, const Arguments& arguments) {
  const auto [a, b, c] = bind_arguments<3>(context, "range", arguments, {"", " ", "  "});
  if (a == nullptr) context.fail("range() needs a number");
  const int64_t start = b == nullptr ? 0 : integer_argument(context, "start", a, 0);
  const int64_t stop = integer_argument(context, "stop", b == nullptr ? a : b, 0);
  const int64_t step = integer_argument(context, "step", c, 1);
  if (step == 0) context.fail("the step of range() is 0");
  std::vector<Value> items;
  for (__int128 i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      context.fail(fmt::format("range() is longer than {}", kRangeMax));
    }
    items.push_back(static_cast<int64_t>(i));
  }
  context.charge(items.size() / 16);
  return context.make_list(std::move(items), ListKind::kRange);
}

Value make_dict(TemplateContext& context, const Arguments& arguments) {
  if (arguments.positional.size() > 1) context.fail("dict() has too many arguments");
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is_dict()) context.fail("dict() needs a mapping");
    entries = arguments.positional[0].entries();
  }
  for (const auto& [name, value] : arguments.keyword) {
    context.charge(1 + entries.size() / 16);
    const auto known =
        std::find_if(entries.begin(), entries.end(), [&, key = name](const auto& entry) {
          return entry.first.is_string() && entry.first.text() == key;
        });
    if (known != entries.end()) {
      known->second = value;
    } else {
      entries.emplace_back(Value::view(name), value);
    }
  }
  return context.make_dict(std::move(entries));
}

Value raise_exception(TemplateContext& context, const Arguments& arguments) {
  const auto [message] = bind_arguments<1>(context, "raise_exception", arguments, {"message"});
  std::string text;
  if (message != nullptr) append_string(context, *message, text);
  context.fail(std::move(text));
}

Value strftime_now(TemplateContext& context, const Arguments& arguments) {
  const auto [format] = bind_arguments<1>(context, "strftime_now", arguments, {"format"});
  if (format == nullptr) context.fail("strftime_now() needs a format");
  const std::string pattern(string_argument(context, "format", format, ""));
  if (pattern.empty()) return Value::view("");
  if (pattern.size() > 256) context.fail("the format of strftime_now() is too long");
  const std::time_t now = static_cast<std::time_t>(context.now_unix_s());
  std::tm calendar{};
  gmtime_r(&now, &calendar);
  char text[4096];
  const size_t length = std::strftime(text, sizeof(text), pattern.c_str(), &calendar);
  return context.make_string(std::string(text, length));
}

constexpr TemplateFunction kFunctions[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", nullptr},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

bool receives(Receiver receiver, const Value& value) {
  switch (receiver) {
    case Receiver::kString:
      return value.is_string();
    case Receiver::kList:
      return value.is_indexable();
    case Receiver::kDict:
      return value.is_dict();
    case Receiver::kLoop:
      return value.is<const TemplateLoop*>();
  }
  return false;
}

}  // namespace

const TemplateMethod* find_template_method(const Value& receiver, std::string_view name) {
  for (const TemplateMethod& method : kMethods) {
    if (method.name == name && receives(method.receiver, receiver)) return &method;
  }
  return nullptr;
}

const TemplateFunction* find_template_function(std::string_view name) {
  for (const TemplateFunction& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

int64_t integer_argument(TemplateContext& context, std::string_view name, const Value* argument,
                         int64_t otherwise) {
  if (argument == nullptr || argument->is_none()) return otherwise;
  if (!argument->is_integral()) context.fail(fmt::format("'{}' is not an integer", name));
  return argument->integer();
}

std::string_view string_argument(TemplateContext& context, std::string_view name,
                                 const Value* argument, std::string_view otherwise) {
  if (argument == nullptr) return otherwise;
  if (!argument->is_string()) context.fail(fmt::format("'{}' is not a string", name));
  return argument->text();
}

bool truth_argument(const Value* argument, bool otherwise) {
  return argument == nullptr ? otherwise : argument->truthy();
}

}  // namespace headrace
