#include "text/grammar/json_schema_apart.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace headrace {
namespace {

using Values = std::set<std::string>;

// What tells a schema's values from those of others. Empty: nothing does.
struct Signature {
  std::set<std::string_view> types;
  Values values;                            // all that there are
  std::map<std::string_view, Values> tags;  // of properties that an object must have
};

// Whole numbers are numbers.
std::string_view type_of(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_number()) return "number";
  return value.is_bool() ? "boolean" : "null";
}

// Equal values have one spelling: 1 and 1.0, and objects in any order, so that lists and objects
// are only what they are.
std::string spelling_of(const Json& value) {
  if (value.is_number()) return fmt::format("{}", value.as_double());
  if (value.is_array() || value.is_object()) return std::string(type_of(value));
  return write_json(value);
}

Values values_of(const Json& schema) {
  Values values;
  if (const Json* one = schema.find("const")) values.insert(spelling_of(*one));
  if (const Json* list = schema.find("enum"); list && list->is_array()) {
    for (const Json& value : list->as_array()) values.insert(spelling_of(value));
  }
  return values;
}

std::set<std::string_view> types_of(const Json& schema) {
  std::set<std::string_view> types;
  if (const Json* type = schema.find("type")) {
    for (const Json& each : type->is_array() ? type->as_array() : Json::Array{*type}) {
      const std::string_view name = each.is_string() ? each.as_string() : std::string_view();
      for (std::string_view known : {"object", "array", "string", "number", "boolean", "null"}) {
        if (known == name || (known == "number" && name == "integer")) types.insert(known);
      }
    }
    return types;
  }
  if (const Json* one = schema.find("const")) types.insert(type_of(*one));
  if (const Json* list = schema.find("enum"); list && list->is_array()) {
    for (const Json& value : list->as_array()) types.insert(type_of(value));
  }
  return types;
}

Signature signature_of(const Json& schema, const SchemaTarget& target) {
  Signature signature{.types = types_of(schema), .values = values_of(schema), .tags = {}};
  const Json* properties = schema.find("properties");
  const Json* required = schema.find("required");
  if (!properties || !required || !required->is_array()) return signature;
  for (const Json& name : required->as_array()) {
    const Json* property = name.is_string() ? properties->find(name.as_string()) : nullptr;
    if (!property) continue;
    Values values = values_of(target(*property));
    if (!values.empty()) signature.tags.emplace(name.as_string(), std::move(values));
  }
  return signature;
}

template <class T>
bool share_none(const std::set<T>& a, const std::set<T>& b) {
  return std::none_of(a.begin(), a.end(), [&](const T& each) { return b.contains(each); });
}

bool are_apart(const Signature& a, const Signature& b) {
  if (!a.types.empty() && !b.types.empty() && share_none(a.types, b.types)) return true;
  if (!a.values.empty() && !b.values.empty()) return share_none(a.values, b.values);
  const std::set<std::string_view> object = {"object"};
  if (a.types != object || b.types != object) return false;
  return std::any_of(a.tags.begin(), a.tags.end(), [&](const auto& tag) {
    const auto other = b.tags.find(tag.first);
    return other != b.tags.end() && share_none(tag.second, other->second);
  });
}

}  // namespace

bool schemas_are_apart(const Json::Array& schemas, const SchemaTarget& target) {
  std::vector<Signature> signatures;
  for (const Json& schema : schemas) signatures.push_back(signature_of(target(schema), target));
  for (size_t i = 0; i < signatures.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!are_apart(signatures[i], signatures[j])) return false;
    }
  }
  return true;
}

}  // namespace headrace
