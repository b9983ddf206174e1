// Values of a template at run time: Python's, without mutation. Lists and dicts never change once
// made, so they cannot form cycles; namespaces, macros and loops live in the render's own storage
// and values only point at them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {

class TemplateContext;
struct TemplateMethod;  // template_builtins.h
struct TemplateFunction;
struct TemplateMacro;  // template_eval.h
struct TemplateNamespace;
struct TemplateLoop;

class Value;
// What Python would call it; all but the first two are only run over, measured or indexed.
enum class ListKind {
  kList,
  kTuple,
  kRange,
  kKeys,  // views of a dict
  kValues,
  kItems,
  kIterator,  // of map, select and the like: true, without length, and empty once run over
};
struct ListValue {
  std::vector<Value> items;
  ListKind kind;
  int depth;                   // 1 + the deepest item's
  mutable bool spent = false;  // an iterator that was run over
};
struct DictValue {
  std::vector<std::pair<Value, Value>> entries;  // keys are unique, in order of insertion
  int depth;
};

struct Undefined {
  std::string_view name;  // what was looked up, for messages; may be empty
};
struct None {};
struct StringValue {
  std::string_view text;
  std::shared_ptr<const std::string> owner;  // null where the template or its input owns the text
  bool is_safe = false;  // marked by safe or escape: what is added to it gets escaped
};
struct BoundMethod;

class Value {
 public:
  using List = std::shared_ptr<const ListValue>;
  using Dict = std::shared_ptr<const DictValue>;

  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(undefined) {}
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(StringValue value) : data_(std::move(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Dict value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const BoundMethod> value) : data_(std::move(value)) {}
  Value(const TemplateFunction* value) : data_(value) {}
  Value(const TemplateMacro* value) : data_(value) {}
  Value(TemplateNamespace* value) : data_(value) {}
  Value(const TemplateLoop* value) : data_(value) {}
  // A string whose memory outlives the render.
  static Value view(std::string_view text) { return Value(StringValue{text, nullptr}); }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  // REQUIRES: is<T>()
  template <class T>
  const T& as() const {
    return *std::get_if<T>(&data_);
  }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_string() const { return is<StringValue>(); }
  bool is_list() const { return is<List>(); }  // of any kind
  bool is_kind(ListKind kind) const { return is_list() && as<List>()->kind == kind; }
  bool is_plain_list() const { return is_kind(ListKind::kList) || is_kind(ListKind::kTuple); }
  bool is_indexable() const { return is_plain_list() || is_kind(ListKind::kRange); }
  bool is_safe() const { return is_string() && as<StringValue>().is_safe; }
  bool is_dict() const { return is<Dict>(); }
  // Booleans count as integers, as in Python.
  bool is_integral() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integral() || is<double>(); }
  bool is_callable() const;

  std::string_view text() const { return as<StringValue>().text; }       // REQUIRES: is_string()
  const std::vector<Value>& items() const { return as<List>()->items; }  // REQUIRES: is_list()
  const std::vector<std::pair<Value, Value>>& entries() const { return as<Dict>()->entries; }
  int64_t integer() const {
    return is_bool() ? as<bool>() : as<int64_t>();
  }  // REQUIRES: is_integral()
  double real() const { return is<double>() ? as<double>() : static_cast<double>(integer()); }

  bool truthy() const;
  int depth() const;                   // 0 for what is no list or dict
  std::string_view type_name() const;  // Python's: "str", "int", "dict", ...

 private:
  std::variant<Undefined, None, bool, int64_t, double, StringValue, List, Dict,
               std::shared_ptr<const BoundMethod>, const TemplateFunction*, const TemplateMacro*,
               TemplateNamespace*, const TemplateLoop*>
      data_;
};

struct BoundMethod {
  Value self;
  const TemplateMethod* method;
};

// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keyword;
};

// What follows charges `context` for its work and fails through it.

// A string as safe, as not safe, and with <>&'" replaced unless it is safe. REQUIRES: is_string()
Value mark_safe(Value string);
Value plain_string(Value string);
Value escape_string(TemplateContext& context, const Value& string);

// ==, by value; numbers of all kinds compare equal.
bool equal(TemplateContext& context, const Value& a, const Value& b);
// Negative, 0, positive. Fails for values that Python does not order.
int compare(TemplateContext& context, const Value& a, const Value& b);
// The value of `key`, or nullptr.
const Value* find_entry(TemplateContext& context, const DictValue& dict, const Value& key);
// `item in container`
bool contains(TemplateContext& context, const Value& container, const Value& item);
// What a loop runs over: items, keys or characters. Spends an iterator. Fails for what cannot be
// iterated.
Value::List iterate(TemplateContext& context, const Value& value);

// The same for a range-for, which keeps this object, but would not keep the list behind it.
struct ItemRange {
  Value::List list;
  auto begin() const { return list->items.begin(); }
  auto end() const { return list->items.end(); }
};
inline ItemRange each(TemplateContext& context, const Value& value) {
  return {iterate(context, value)};
}

// str() of a value. A string gives itself.
Value to_string(TemplateContext& context, const Value& value);
void append_string(TemplateContext& context, const Value& value, std::string& out);

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // -1 = one line
  std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps() of a value.
void append_json(TemplateContext& context, const Value& value, const JsonFormat& format,
                 std::string& out);

}  // namespace headrace
