#include "text/template/template_context.h"

#include <algorithm>

#include <fmt/core.h>

namespace headrace {

void TemplateContext::fail_steps() const {
  template_error(line_, fmt::format("the template takes more than {} steps", limits_.steps_max),
                 StatusCode::kExhausted);
}

void TemplateContext::fail_output() const {
  template_error(line_,
                 fmt::format("the template makes more than {} bytes", limits_.output_bytes_max),
                 StatusCode::kExhausted);
}

void TemplateContext::hold_bytes(size_t bytes) {
  if (live_bytes_ + bytes > 4 * limits_.output_bytes_max) fail_output();
  live_bytes_ += bytes;
}

int TemplateContext::child_depth(int deepest) const {
  // The input may be as deep as JSON allows, and the template may wrap it once more.
  if (deepest >= 2 * limits_.depth_max) {
    template_error(line_, fmt::format("a value is more than {} levels deep", 2 * limits_.depth_max),
                   StatusCode::kExhausted);
  }
  return deepest + 1;
}

Value TemplateContext::make_string(std::string text) {
  check_string_size(text.size());
  charge_bytes(text.size());
  const size_t bytes = text.size() + sizeof(std::string);
  hold_bytes(bytes);
  const std::shared_ptr<const std::string> owner(new std::string(std::move(text)),
                                                 [this, bytes](const std::string* owned) {
                                                   live_bytes_ -= bytes;
                                                   delete owned;
                                                 });
  return StringValue{*owner, owner};
}

Value TemplateContext::make_list(std::vector<Value> items, ListKind kind) {
  charge(items.size() / 16);
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  const int depth = child_depth(deepest);
  const size_t bytes = sizeof(ListValue) + items.size() * sizeof(Value);
  hold_bytes(bytes);
  return Value::List(new ListValue{std::move(items), kind, depth},
                     [this, bytes](const ListValue* owned) {
                       live_bytes_ -= bytes;
                       delete owned;
                     });
}

Value TemplateContext::make_dict(std::vector<std::pair<Value, Value>> entries) {
  charge(entries.size() / 16);
  int deepest = 0;
  for (const auto& [key, value] : entries)
    deepest = std::max({deepest, key.depth(), value.depth()});
  const int depth = child_depth(deepest);
  const size_t bytes = sizeof(DictValue) + entries.size() * 2 * sizeof(Value);
  hold_bytes(bytes);
  return Value::Dict(new DictValue{std::move(entries), depth},
                     [this, bytes](const DictValue* owned) {
                       live_bytes_ -= bytes;
                       delete owned;
                     });
}

Value TemplateContext::from_json(const Json& json) {
  if (json.is_bool()) return json.as_bool();
  if (json.is_int()) return json.as_int();
  if (json.is_double()) return json.as_double();
  if (json.is_string()) return Value::view(json.as_string());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(from_json(item));
    return make_list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<Value, Value>> entries;
    entries.reserve(json.as_object().size());
    for (const auto& [key, value] : json.as_object()) {
      entries.emplace_back(Value::view(key), from_json(value));
    }
    return make_dict(std::move(entries));
  }
  return None{};
}

void TemplateContext::append(std::string& out, std::string_view text) {
  charge_bytes(text.size());
  check_string_size(out.size() + text.size());
  out.append(text);
}

}  // namespace headrace
