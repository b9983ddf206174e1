#include "text/template/template_value.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "text/template/template_context.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {

namespace {
constexpr std::string_view kListKindNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                               "dict_values", "dict_items", "generator"};
}  // namespace

bool Value::is_callable() const {
  return is<std::shared_ptr<const BoundMethod>>() || is<const TemplateFunction*>() ||
         is<const TemplateMacro*>();
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return integer() != 0;
  if (is<double>()) return as<double>() != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return is_kind(ListKind::kIterator) || !items().empty();
  if (is_dict()) return !entries().empty();
  return true;
}

int Value::depth() const {
  if (is_list()) return as<List>()->depth;
  if (is_dict()) return as<Dict>()->depth;
  // A bound method owns its receiver, so it nests as that does.
  if (is<std::shared_ptr<const BoundMethod>>()) {
    return 1 + as<std::shared_ptr<const BoundMethod>>()->self.depth();
  }
  return 0;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is<int64_t>()) return "int";
  if (is<double>()) return "float";
  if (is_string()) return "str";
  if (is_list()) return kListKindNames[static_cast<size_t>(as<List>()->kind)];
  if (is_dict()) return "dict";
  if (is<TemplateNamespace*>()) return "Namespace";
  if (is<const TemplateLoop*>()) return "LoopContext";
  return "function";
}

Value mark_safe(Value string) {
  StringValue marked = string.as<StringValue>();
  marked.is_safe = true;
  return marked;
}

Value plain_string(Value string) {
  StringValue plain = string.as<StringValue>();
  plain.is_safe = false;
  return plain;
}

Value escape_string(TemplateContext& context, const Value& string) {
  if (string.is_safe()) return string;
  context.charge_bytes(string.text().size());
  std::string out;
  for (char c : string.text()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return mark_safe(context.make_string(std::move(out)));
}

bool equal(TemplateContext& context, const Value& a, const Value& b) {
  context.charge(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() != b.text().size()) return false;
    context.charge_bytes(a.text().size());
    return a.text() == b.text();
  }
  if (a.is_list() && b.is_list()) {
    if (a.as<Value::List>()->kind != b.as<Value::List>()->kind) return false;
    if (a.is_kind(ListKind::kIterator)) return a.as<Value::List>() == b.as<Value::List>();
    if (a.items().size() != b.items().size()) return false;
    for (size_t i = 0; i < a.items().size(); ++i) {
      if (!equal(context, a.items()[i], b.items()[i])) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.entries().size() != b.entries().size()) return false;
    for (const auto& [key, value] : a.entries()) {
      const Value* other = find_entry(context, *b.as<Value::Dict>(), key);
      if (other == nullptr || !equal(context, value, *other)) return false;
    }
    return true;
  }
  if (a.is_none() || a.is_undefined()) return a.is_none() ? b.is_none() : b.is_undefined();
  if (a.is<TemplateNamespace*>() && b.is<TemplateNamespace*>()) {
    return a.as<TemplateNamespace*>() == b.as<TemplateNamespace*>();
  }
  if (a.is<const TemplateMacro*>() && b.is<const TemplateMacro*>()) {
    return a.as<const TemplateMacro*>() == b.as<const TemplateMacro*>();
  }
  return false;
}

int compare(TemplateContext& context, const Value& a, const Value& b) {
  context.charge(1);
  const auto order = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_integral() && b.is_integral()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.is_string() && b.is_string()) {
    context.charge_bytes(std::min(a.text().size(), b.text().size()));
    return order(a.text().compare(b.text()), 0);  // UTF-8 orders bytes as code points
  }
  const bool lists =
      a.is_plain_list() && b.is_list() && a.as<Value::List>()->kind == b.as<Value::List>()->kind;
  if (!lists) {
    context.fail(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
  }
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    if (!equal(context, a.items()[i], b.items()[i])) {
      return compare(context, a.items()[i], b.items()[i]);
    }
  }
  return order(a.items().size(), b.items().size());
}

const Value* find_entry(TemplateContext& context, const DictValue& dict, const Value& key) {
  context.charge(dict.entries.size() / 16);
  for (const auto& [candidate, value] : dict.entries) {
    const bool same = key.is_string() && candidate.is_string() ? key.text() == candidate.text()
                                                               : equal(context, key, candidate);
    if (same) return &value;
  }
  return nullptr;
}

bool contains(TemplateContext& context, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      context.fail(
          fmt::format("'in <string>' needs a string on the left, not {}", item.type_name()));
    }
    context.charge_bytes(container.text().size());
    return find_text(container.text(), item.text(), 0) != std::string_view::npos;
  }
  if (container.is_dict())
    return find_entry(context, *container.as<Value::Dict>(), item) != nullptr;
  for (const Value& candidate : each(context, container)) {
    if (equal(context, candidate, item)) return true;
  }
  return false;
}

Value::List iterate(TemplateContext& context, const Value& value) {
  std::vector<Value> items;
  if (value.is_list()) {
    const Value::List& list = value.as<Value::List>();
    if (list->kind != ListKind::kIterator || !std::exchange(list->spent, true)) return list;
    return context.make_list({}).as<Value::List>();
  }
  if (value.is_dict()) {
    for (const auto& [key, entry] : value.entries()) items.push_back(key);
  } else if (value.is_string()) {
    context.charge(value.text().size());
    const StringValue& string = value.as<StringValue>();
    for (std::string_view c : characters(string.text))
      items.push_back(StringValue{c, string.owner});
  } else if (!value.is_undefined()) {
    context.fail(fmt::format("'{}' cannot be iterated", value.type_name()));
  }
  return context.make_list(std::move(items)).as<Value::List>();
}

namespace {

void append_repr(TemplateContext& context, const Value& value, std::string& out) {
  context.charge(1);
  if (value.is_string()) {
    context.append(out, python_repr(value.text()));
  } else if (value.is_list()) {
    const bool is_tuple = value.is_kind(ListKind::kTuple);
    const bool is_view = !is_tuple && !value.is_kind(ListKind::kList);
    if (value.is_kind(ListKind::kIterator) || value.is_kind(ListKind::kRange)) {
      context.fail(fmt::format("a {} is no text; make it a list", value.type_name()));
    }
    if (is_view) context.append(out, fmt::format("{}(", value.type_name()));
    context.append(out, is_tuple ? "(" : "[");
    bool first = true;
    for (const Value& item : value.items()) {
      if (!std::exchange(first, false)) context.append(out, ", ");
      append_repr(context, item, out);
    }
    if (is_tuple && value.items().size() == 1) context.append(out, ",");
    context.append(out, is_tuple ? ")" : is_view ? "])" : "]");
  } else if (value.is_dict()) {
    context.append(out, "{");
    bool first = true;
    for (const auto& [key, entry] : value.entries()) {
      if (!std::exchange(first, false)) context.append(out, ", ");
      append_repr(context, key, out);
      context.append(out, ": ");
      append_repr(context, entry, out);
    }
    context.append(out, "}");
  } else if (value.is_undefined()) {
    context.append(out, "Undefined");
  } else {
    append_string(context, value, out);
  }
}

// A JSON string: quotes, backslash and control characters escaped, others as they are or as \uXXXX.
void append_json_text(TemplateContext& context, std::string_view text, bool ensure_ascii,
                      std::string& out) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const std::string_view bytes = text.substr(0, step.length);
    text.remove_prefix(step.length);
    const size_t known = std::string_view("\"\\\n\r\t\b\f").find(bytes[0]);
    const bool valid = step.state == Utf8State::kValid;
    if (known != std::string_view::npos) {
      quoted.push_back('\\');
      quoted.push_back("\"\\nrtbf"[known]);
    } else if (valid && step.code_point < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(step.code_point));
    } else if (valid && ensure_ascii && step.code_point >= 0x10000) {
      const auto rest = static_cast<uint32_t>(step.code_point) - 0x10000;
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else if (valid && ensure_ascii && step.code_point >= 0x7F) {
      quoted += step.code_point == 0x7F
                    ? std::string(bytes)
                    : fmt::format("\\u{:04x}", static_cast<uint32_t>(step.code_point));
    } else {
      quoted.append(bytes);
    }
  }
  quoted.push_back('"');
  context.append(out, quoted);
}

class JsonWriter {
 public:
  JsonWriter(TemplateContext& context, const JsonFormat& format, std::string& out)
      : context_(context), format_(format), out_(out) {}

  void write(const Value& value, int level) {
    context_.charge(1);
    if (value.is_string()) {
      append_json_text(context_, value.text(), format_.ensure_ascii, out_);
    } else if (value.is_plain_list()) {
      write_list(value.items(), level);
    } else if (value.is_dict()) {
      write_dict(value.entries(), level);
    } else if (value.is_number() || value.is_none()) {
      context_.append(out_, scalar(value));
    } else {
      context_.fail(fmt::format("'{}' cannot be written as JSON", value.type_name()));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as<bool>() ? "true" : "false";
    if (value.is_integral()) return fmt::format("{}", value.integer());
    const double real = value.real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
    return python_float(real);
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) return context_.append(out_, "[]");
    context_.append(out_, "[");
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i, level + 1);
      write(items[i], level + 1);
    }
    break_line(level);
    context_.append(out_, "]");
  }

  void write_dict(const std::vector<std::pair<Value, Value>>& entries, int level) {
    if (entries.empty()) return context_.append(out_, "{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& entry : entries) order.push_back(&entry);
    if (format_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return compare(context_, a->first, b->first) < 0;
      });
    }
    context_.append(out_, "{");
    for (size_t i = 0; i < order.size(); ++i) {
      separate(i, level + 1);
      write_key(order[i]->first);
      context_.append(out_, format_.key_separator);
      write(order[i]->second, level + 1);
    }
    break_line(level);
    context_.append(out_, "}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return append_json_text(context_, key.text(), format_.ensure_ascii, out_);
    if (!key.is_number() && !key.is_none()) {
      context_.fail(fmt::format("'{}' cannot be a key in JSON", key.type_name()));
    }
    context_.append(out_, "\"" + scalar(key) + "\"");
  }

  void separate(size_t index, int level) {
    if (index > 0) context_.append(out_, format_.item_separator);
    break_line(level);
  }
  void break_line(int level) {
    if (format_.indent < 0) return;
    const size_t width = static_cast<size_t>(level) * static_cast<size_t>(format_.indent);
    context_.check_string_size(out_.size() + width);
    context_.append(out_, "\n" + std::string(width, ' '));
  }

  TemplateContext& context_;
  const JsonFormat& format_;
  std::string& out_;
};

}  // namespace

void append_string(TemplateContext& context, const Value& value, std::string& out) {
  if (value.is_string()) {
    context.append(out, value.text());
  } else if (value.is_undefined()) {
    return;
  } else if (value.is_none()) {
    context.append(out, "None");
  } else if (value.is_bool()) {
    context.append(out, value.as<bool>() ? "True" : "False");
  } else if (value.is_integral()) {
    context.append(out, fmt::format("{}", value.integer()));
  } else if (value.is<double>()) {
    context.append(out, python_float(value.real()));
  } else if (value.is_list() || value.is_dict()) {
    append_repr(context, value, out);
  } else {
    context.append(out, fmt::format("<{}>", value.type_name()));
  }
}

Value to_string(TemplateContext& context, const Value& value) {
  if (value.is_string()) return value;
  std::string out;
  append_string(context, value, out);
  return context.make_string(std::move(out));
}

void append_json(TemplateContext& context, const Value& value, const JsonFormat& format,
                 std::string& out) {
  JsonWriter(context, format, out).write(value, 0);
}

}  // namespace headrace
