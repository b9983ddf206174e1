// An independent reader of JSON schemas, for tests: whether a value satisfies one. It knows the
// keywords of tests' schemas, and fails loudly at others.
#pragma once

#include "base/json.h"

namespace headrace {

// `root`: what $ref looks into.
bool satisfies(const Json& value, const Json& schema, const Json& root);

}  // namespace headrace
