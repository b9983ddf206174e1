#include "text/output/argument_schema.h"

#include <algorithm>
#include <string>

namespace headrace {
namespace {

constexpr int kStepsMax = 16;  // of references and alternatives, one behind the other

// "#/$defs/a": names that need no decoding are all that tools have.
const Json* referred_to(const Json* root, const Json& reference) {
  if (!reference.is_string()) return nullptr;
  std::string_view path = reference.as_string();
  if (!path.starts_with('#')) return nullptr;
  path.remove_prefix(1);
  const Json* at = root;
  while (at && path.starts_with('/')) {
    const size_t end = std::min(path.find('/', 1), path.size());
    at = at->find(path.substr(1, end - 1));
    path.remove_prefix(end);
  }
  return path.empty() ? at : nullptr;
}

bool is_null_schema(const Json& schema) {
  const Json* type = schema.find("type");
  return type && *type == Json("null");
}

// An allOf of one schema is how some writers put words beside a reference.
const Json* first_alternative(const Json& schema) {
  for (std::string_view keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json* list = schema.find(keyword);
    if (!list || !list->is_array()) continue;
    const Json::Array& all = list->as_array();
    if (keyword == "allOf" && all.size() != 1) continue;
    const auto found = std::find_if_not(all.begin(), all.end(), is_null_schema);
    if (found != all.end()) return &*found;
  }
  return nullptr;
}

bool says_type(const Json* schema, std::string_view name) {
  const Json* type = schema ? schema->find("type") : nullptr;
  if (!type) return false;
  if (!type->is_array()) return *type == Json(name);
  const Json::Array& all = type->as_array();
  return std::find(all.begin(), all.end(), Json(name)) != all.end();
}

}  // namespace

const Json* resolved_schema(const Json* root, const Json* schema) {
  for (int step = 0; schema && step < kStepsMax; ++step) {
    if (!schema->is_object() || schema->as_object().empty()) return nullptr;
    if (const Json* reference = schema->find("$ref")) {
      schema = referred_to(root, *reference);
    } else if (const Json* other = first_alternative(*schema); other && !schema->find("type")) {
      schema = other;
    } else {
      return schema;
    }
  }
  return nullptr;
}

const Json* member_schema(const Json* root, const Json* schema, std::string_view name) {
  if (!schema) return nullptr;
  const Json* properties = schema->find("properties");
  const Json* member = properties ? properties->find(name) : nullptr;
  if (!member) member = schema->find("additionalProperties");
  return resolved_schema(root, member);
}

const Json* element_schema(const Json* root, const Json* schema) {
  return schema ? resolved_schema(root, schema->find("items")) : nullptr;
}

bool is_list_schema(const Json* schema) {
  return says_type(schema, "array") || (schema && schema->find("items"));
}

bool is_object_schema(const Json* schema) {
  return says_type(schema, "object") || (schema && schema->find("properties"));
}

}  // namespace headrace
