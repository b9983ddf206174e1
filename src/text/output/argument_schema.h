// What a tool's JSON schema says of a place within its arguments, for values that models write
// without the marks of JSON.
#pragma once

#include <string_view>

#include "base/json.h"

namespace headrace {

// Behind references (into `root`) and alternatives: of those the first that is not null's. nullptr
// where `schema` is, or where nothing is said. The views live as long as `root`.
const Json* resolved_schema(const Json* root, const Json* schema);
// The same of an object's member and of a list's elements. `schema` is resolved, or nullptr.
const Json* member_schema(const Json* root, const Json* schema, std::string_view name);
const Json* element_schema(const Json* root, const Json* schema);

// Whether it is said, of a resolved schema or nullptr.
bool is_list_schema(const Json* schema);
bool is_object_schema(const Json* schema);

}  // namespace headrace
