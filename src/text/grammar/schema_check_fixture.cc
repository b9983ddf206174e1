#include "text/grammar/schema_check_fixture.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>

#include "base/check.h"
#include "text/utf8.h"

namespace headrace {
namespace {

bool has_type_named(const Json& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number() && std::floor(value.as_double()) == value.as_double();
  }
  if (type == "number") return value.is_number();
  return value.type_name() == type;
}

bool check_type(const Json& value, const Json& type) {
  if (type.is_string()) return has_type_named(value, type.as_string());
  return std::any_of(type.as_array().begin(), type.as_array().end(),
                     [&](const Json& each) { return has_type_named(value, each.as_string()); });
}

bool check_object(const Json& value, const Json& schema, const Json& root) {
  std::set<std::string> names;
  for (const auto& [name, inner] : value.as_object()) {
    names.insert(name);
    const Json* properties = schema.find("properties");
    const Json* property = properties ? properties->find(name) : nullptr;
    if (!property) property = schema.find("additionalProperties");
    if (property && !satisfies(inner, *property, root)) return false;
  }
  const Json* required = schema.find("required");
  if (!required) return true;
  return std::all_of(required->as_array().begin(), required->as_array().end(),
                     [&](const Json& name) { return names.contains(name.as_string()); });
}

bool check_list(const Json& value, const Json& schema, const Json& root) {
  const Json::Array& items = value.as_array();
  const Json* prefix = schema.find("prefixItems");
  const Json* rest = schema.find("items");
  for (size_t i = 0; i < items.size(); ++i) {
    const bool in_prefix = prefix && i < prefix->as_array().size();
    const Json* item = in_prefix ? &prefix->as_array()[i] : rest;
    if (item && !satisfies(items[i], *item, root)) return false;
  }
  const auto count = static_cast<int64_t>(items.size());
  const Json* min = schema.find("minItems");
  const Json* max = schema.find("maxItems");
  return (!min || count >= min->as_int()) && (!max || count <= max->as_int());
}

bool check_text(const Json& value, const Json& schema) {
  const std::string& text = value.as_string();
  const auto length = static_cast<int64_t>(count_code_points(text));
  const Json* min = schema.find("minLength");
  const Json* max = schema.find("maxLength");
  const Json* pattern = schema.find("pattern");
  if ((min && length < min->as_int()) || (max && length > max->as_int())) return false;
  return !pattern || std::regex_search(text, std::regex(pattern->as_string()));
}

bool check_number(const Json& value, const Json& schema) {
  const double number = value.as_double();
  const auto bound = [&](const char* keyword) { return schema.find(keyword); };
  if (const Json* b = bound("minimum"); b && number < b->as_double()) return false;
  if (const Json* b = bound("maximum"); b && number > b->as_double()) return false;
  if (const Json* b = bound("exclusiveMinimum"); b && number <= b->as_double()) return false;
  const Json* b = bound("exclusiveMaximum");
  return !b || number < b->as_double();
}

const Json& look_up(const std::string& ref, const Json& root) {
  const Json* at = &root;
  for (size_t first = 1; first < ref.size();) {
    const size_t end = std::min(ref.find('/', first + 1), ref.size());
    at = at->find(ref.substr(first + 1, end - first - 1));
    CHECK(at != nullptr);
    first = end;
  }
  return *at;
}

}  // namespace

bool satisfies(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_bool()) return schema.as_bool();
  const auto each = [&](const Json& part) { return satisfies(value, part, root); };
  for (const auto& [keyword, what] : schema.as_object()) {
    if (keyword == "$ref" && !satisfies(value, look_up(what.as_string(), root), root)) return false;
    if (keyword == "type" && !check_type(value, what)) return false;
    if (keyword == "const" && value != what) return false;
    if (keyword == "enum" &&
        std::find(what.as_array().begin(), what.as_array().end(), value) == what.as_array().end()) {
      return false;
    }
    if ((keyword == "anyOf" || keyword == "oneOf") &&
        std::none_of(what.as_array().begin(), what.as_array().end(), each)) {
      return false;
    }
    if (keyword == "allOf" && !std::all_of(what.as_array().begin(), what.as_array().end(), each)) {
      return false;
    }
  }
  if (value.is_object()) return check_object(value, schema, root);
  if (value.is_array()) return check_list(value, schema, root);
  if (value.is_string()) return check_text(value, schema);
  return !value.is_number() || check_number(value, schema);
}

}  // namespace headrace
