// Whether at most one of some JSON schemas can be satisfied by any value, so that "oneOf" is
// "anyOf".
#pragma once

#include <functional>

#include "base/json.h"

namespace headrace {

// A schema's target: itself, or what it refers to.
using SchemaTarget = std::function<const Json&(const Json& schema)>;

// True only where it shows: by types that are named, by values that are listed, or by a property
// that objects must have, whose listed values differ. False also of more than 256 schemas.
bool schemas_are_apart(const Json::Array& schemas, const SchemaTarget& target);

}  // namespace headrace
