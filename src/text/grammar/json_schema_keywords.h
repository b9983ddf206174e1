// What a JSON schema may say here, and what is looked at of it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

// Every keyword is known, and none asks for something that is not done: else the error names it
// behind `place`. REQUIRES: schema.is_object()
Status check_schema_keywords(const Json& schema, const std::string& place);

// Whether it says anything beside `keyword` and what is for people only.
bool says_more_than(const Json& schema, std::string_view keyword);

enum class SchemaFamily { kObject, kArray, kString, kNumber };
// Whether it has a keyword that is about values of a type.
bool speaks_of(const Json& schema, SchemaFamily family);

// A regular expression for `format`; empty: it is not known.
std::string_view format_pattern(std::string_view format);

}  // namespace headrace
