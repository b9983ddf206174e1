#include "text/json_fields.h"

#include <fmt/core.h>

namespace headrace {

std::string JsonFields::path(std::string_view key) const {
  if (key.empty()) return place_;
  return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
}

const Json* JsonFields::find(std::string_view key) const {
  const Json* member = object_->find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

Status JsonFields::corrupt_field(std::string_view key, std::string_view what) const {
  return corrupt(fmt::format("{}: {}", path(key), what), path(key));
}

Status JsonFields::unsupported_field(std::string_view key, std::string_view what) const {
  return unsupported(fmt::format("{}: {}", path(key), what), path(key));
}

Status JsonFields::wrong_type(std::string_view key, std::string_view expected) const {
  const Json* member = object_->find(key);
  return corrupt_field(
      key, fmt::format("is {}, expected {}", member == nullptr ? "missing" : member->type_name(),
                       expected));
}

Result<bool> JsonFields::bool_or(std::string_view key, bool fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return fallback;
  if (!member->is_bool()) return wrong_type(key, "a boolean");
  return member->as_bool();
}

Result<int64_t> JsonFields::int_or(std::string_view key, int64_t fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return fallback;
  if (!member->is_int()) return wrong_type(key, "an integer");
  return member->as_int();
}

Result<std::string> JsonFields::string_or(std::string_view key, std::string_view fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return std::string(fallback);
  if (!member->is_string()) return wrong_type(key, "a string");
  return member->as_string();
}

Result<std::string> JsonFields::require_string(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_string()) return wrong_type(key, "a string");
  return member->as_string();
}

Result<JsonFields> JsonFields::require_object(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_object()) return wrong_type(key, "an object");
  return JsonFields(*member, path(key));
}

Result<const Json::Array*> JsonFields::require_array(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_array()) return wrong_type(key, "an array");
  return &member->as_array();
}

}  // namespace headrace
