// JSON values: read by simdjson under limits, written compactly. One reader for requests, configs
// and templates, so that the limits hold everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace headrace {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in file order; keys are unique after parse()

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(size_t value) : value_(static_cast<int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }  // not beyond int64
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "boolean", "integer", "number", "string", "array" or "object": for error messages.
  std::string_view type_name() const;

  // REQUIRES: the matching is_*() (as_double takes both kinds of number)
  bool as_bool() const { return get<bool>(); }
  int64_t as_int() const { return get<int64_t>(); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : get<double>(); }
  const std::string& as_string() const { return get<std::string>(); }
  const Array& as_array() const { return get<Array>(); }
  Array& as_array() { return const_cast<Array&>(std::as_const(*this).as_array()); }
  const Object& as_object() const { return get<Object>(); }
  Object& as_object() { return const_cast<Object&>(std::as_const(*this).as_object()); }

  // The member of an object, or nullptr (also when this is no object).
  const Json* find(std::string_view key) const;
  // Appends or replaces a member. REQUIRES: is_object(). Returns *this for chaining.
  // Looks through all members: for names that the code chooses. Many members that a file or a
  // client chose are put into an Object, or merge()d.
  Json& set(std::string_view key, Json value);
  // Appends members; where a name is there already, the new value replaces it. In n log n.
  // REQUIRES: is_object(); the names of `members` differ. Returns *this.
  Json& merge(Object members);
  // REQUIRES: is_array()
  Json& push(Json value);

  friend bool operator==(const Json&, const Json&) = default;

 private:
  template <class T>
  const T& get() const {
    CHECK(std::holds_alternative<T>(value_));
    return *std::get_if<T>(&value_);
  }
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  int depth_max = 64;
  size_t key_count_max = 100'000;       // members of all objects together
  size_t object_keys_max = SIZE_MAX;    // members of one object
  size_t element_count_max = SIZE_MAX;  // of all arrays together
};

// Strict JSON (RFC 8259): UTF-8 checked, duplicate keys, NaN, numbers out of double's range and
// trailing text refused. Integers beyond int64, of any length, become the nearest doubles. What has
// more commas than keys and elements are allowed is refused unread: nothing is made. Any thread.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});
// The same for texts that have one allowance together: what this one has is taken from `left`.
Result<Json> parse_json_within(std::string_view text, JsonLimits& left);

// Compact, UTF-8 as is, shortest doubles that read back equal; NaN and infinities become null.
// Bytes that are not UTF-8 become U+FFFD.
std::string write_json(const Json& value);
// Appends `text` as a quoted JSON string.
void append_json_string(std::string& out, std::string_view text);

}  // namespace headrace
