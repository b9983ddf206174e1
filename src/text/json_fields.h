// Members of JSON objects with their types checked, for readers of configuration files: errors
// name the place ("pre_tokenizer.pattern").
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

// An object and where it stands in the file. Cheap to copy; `object` must outlive it.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string place) : object_(&object), place_(std::move(place)) {}

  const Json& json() const { return *object_; }
  const std::string& place() const { return place_; }

  // The member, or nullptr where it is missing or null.
  const Json* find(std::string_view key) const;
  // A missing or null member gives `fallback`; one of another type is kCorrupt.
  Result<bool> bool_or(std::string_view key, bool fallback) const;
  Result<int64_t> int_or(std::string_view key, int64_t fallback) const;
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;
  // kCorrupt where missing or of another type.
  Result<std::string> require_string(std::string_view key) const;
  Result<JsonFields> require_object(std::string_view key) const;
  Result<const Json::Array*> require_array(std::string_view key) const;

  Status corrupt_field(std::string_view key, std::string_view what) const;
  Status unsupported_field(std::string_view key, std::string_view what) const;

 private:
  std::string path(std::string_view key) const;
  Status wrong_type(std::string_view key, std::string_view expected) const;

  const Json* object_;
  std::string place_;
};

}  // namespace headrace
