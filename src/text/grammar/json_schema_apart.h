// Whether at most one of some JSON schemas can be satisfied by any value, so that "oneOf" is
// "anyOf".
#pragma once

#include <cstddef>
#include <functional>

#include "base/json.h"

namespace headrace {

// A schema's target: itself, or what it refers to.
using SchemaTarget = std::function<const Json&(const Json& schema)>;

// Of schemas_are_apart(): each is compared with each.
inline constexpr size_t kSchemasApartMax = 256;

// True only where it shows: by types that are named, by values that are listed, or by a property
// that objects must have, whose listed values differ. REQUIRES: at most kSchemasApartMax
bool schemas_are_apart(const Json::Array& schemas, const SchemaTarget& target);

}  // namespace headrace
