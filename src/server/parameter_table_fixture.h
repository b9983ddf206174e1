// Tables of fields against hostile values: 400 naming the field, or accepted for a reason written
// in the row. A field without a row fails the test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>
#include <string>

#include "server/request_fields.h"

namespace headrace {

// Hostile values by name. All are values of valid JSON; NaN and Infinity are none and are tested
// apart.
inline const std::map<std::string, Json>& hostile_values() {
  static const std::map<std::string, Json> values = {
      {"text NaN", Json("NaN")},
      {"text Infinity", Json("Infinity")},
      {"text 1", Json("1")},
      {"-1", Json(-1)},
      {"0", Json(0)},
      {"0.5", Json(0.5)},
      {"2^31-1", Json(int64_t{2147483647})},
      {"2^31", Json(int64_t{1} << 31)},
      {"2^53+2", Json(0x1p53 + 2)},
      {"2^63", Json(0x1p63)},
      {"-2^63", Json(-0x1p63)},
      {"1e308", Json(1e308)},
      {"-1e308", Json(-1e308)},
      {"null", Json()},
      {"true", Json(true)},
      {"array", Json(Json::Array{Json(1)})},
      {"array of null", Json(Json::Array{Json()})},
      {"object", Json(Json::Object{{"a", Json(1)}})},
      {"long text", Json(std::string(5000, 'x'))},
  };
  return values;
}

// Field -> hostile values that are accepted. Everything not listed must be refused; null is absence
// and always accepted.
using Accepted = std::map<std::string, std::set<std::string>>;

inline const std::set<std::string> kTexts = {"text NaN", "text Infinity", "text 1"};
inline const std::set<std::string> kAnyText = {"text NaN", "text Infinity", "text 1", "long text"};
inline const std::set<std::string> kOnlyTrue = {"true"};
inline const std::set<std::string> kUnitInterval = {"0", "0.5"};
inline const std::set<std::string> kUpToTwo = {"-1", "0", "0.5"};
inline const std::set<std::string> kCount = {"0", "2^31-1"};
inline const std::set<std::string> kLength = {"2^31-1"};
inline const std::set<std::string> kEmptyAllowed = {};

inline const RequestLimits kLimits;
inline const FieldContext kContext{kLimits, 300};

template <class Parse>
void check_field_rows(std::string_view field, const std::set<std::string>& accepted,
                      const Json& base, const Parse& parse) {
  for (const auto& [name, value] : hostile_values()) {
    Json body = base;
    body.set(field, value);
    const Status status = parse(body);
    const bool expected = accepted.count(name) > 0 || name == "null";
    EXPECT_EQ(status.ok(), expected) << field << " = " << name << ": " << status.message();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), field) << field << " = " << name << ": " << status.message();
    EXPECT_NE(status.message().find(field), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("xxxxx"), std::string::npos) << "input is echoed";
  }
}

template <class Target>
std::set<std::string_view> names_of_own(std::span<const Field<Target>> fields) {
  std::set<std::string_view> names;
  for (const Field<Target>& field : fields) names.insert(field.name);
  return names;
}

template <class Target, class Parse>
void check_table(std::span<const Field<Target>> fields, const Accepted& rows, const Json& base,
                 const Parse& parse, const std::set<std::string>& required = {}) {
  std::set<std::string> seen;
  for (const Field<Target>& field : fields) {
    const std::string name(field.name);
    seen.insert(name);
    ASSERT_TRUE(rows.count(name)) << "no row for " << name;
    if (required.count(name)) continue;  // null is refused there: tested below
    check_field_rows(name, rows.at(name), base, parse);
  }
  for (const auto& [name, _] : rows) EXPECT_TRUE(seen.count(name)) << "row without field: " << name;
}

}  // namespace headrace
