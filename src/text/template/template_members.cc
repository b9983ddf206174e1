// object.name and object[key].
#include <fmt/core.h>

#include "text/template/template_builtins.h"
#include "text/template/template_eval.h"
#include "text/template/template_text.h"

namespace headrace {
namespace {

Value loop_member(const TemplateLoop& loop, std::string_view name) {
  const auto& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return loop.depth;
  if (name == "depth0") return loop.depth - 1;
  if (name == "previtem" && index > 0) return items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return items[loop.index + 1];
  return Undefined{name};
}

// Methods and the members of what is neither a list nor a dict.
Value own_member(TemplateContext& context, const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    context.fail(fmt::format("'{}' is undefined", object.as<Undefined>().name));
  }
  if (const TemplateMethod* method = find_template_method(object, name)) {
    return std::make_shared<const BoundMethod>(BoundMethod{object, method});
  }
  if (object.is<const TemplateLoop*>()) return loop_member(*object.as<const TemplateLoop*>(), name);
  if (object.is<TemplateNamespace*>()) {
    const auto& members = object.as<TemplateNamespace*>()->members;
    context.charge(members.size() / 16);
    for (const auto& [member, value] : members) {
      if (member == name) return value;
    }
  }
  if (object.is<const TemplateMacro*>() && name == "name") {
    return Value::view(object.as<const TemplateMacro*>()->definition->name);
  }
  return Undefined{};
}

Value indexed(const std::vector<Value>& items, int64_t index) {
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  return index >= 0 && index < size ? items[static_cast<size_t>(index)] : Value();
}

// The name of a member that is not there, for messages, where its text outlives the render.
Undefined missing(const Value& key) {
  const bool stable = key.is_string() && !key.as<StringValue>().owner;
  return {stable ? key.text() : std::string_view("item")};
}

}  // namespace

Value get_attribute(TemplateContext& context, const Value& object, std::string_view name) {
  Value member = own_member(context, object, name);
  if (!member.is_undefined()) return member;
  if (object.is_dict()) {
    const Value* entry = find_entry(context, *object.as<Value::Dict>(), Value::view(name));
    if (entry != nullptr) return *entry;
  }
  return Undefined{name};
}

Value get_item(TemplateContext& context, const Value& object, const Value& key) {
  if (object.is_dict()) {
    const Value* entry = find_entry(context, *object.as<Value::Dict>(), key);
    if (entry != nullptr) return *entry;
  }
  if (key.is_integral() && object.is_indexable()) {
    Value item = indexed(object.items(), key.integer());
    return item.is_undefined() ? Value(missing(key)) : item;
  }
  if (key.is_integral() && object.is_string()) {
    const Value item = indexed(iterate(context, object)->items, key.integer());
    return item.is_undefined() ? Value(missing(key)) : item;
  }
  if (key.is_string() || object.is_undefined()) {
    Value member = own_member(context, object, key.is_string() ? key.text() : "");
    if (!member.is_undefined()) return member;
  }
  return missing(key);
}

}  // namespace headrace
