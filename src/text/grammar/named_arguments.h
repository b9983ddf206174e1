// Arguments that a form of calls names one by one, in the order of their schema's properties: what
// such forms ask of it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

// Of the object that arguments are, names and what is said of each can be kept to.
// kInvalidArgument, kUnsupported: the message begins with the place in the schema.
Status check_named_arguments(const Json& schema);

// Whether "required" lists it. REQUIRES: check_named_arguments(schema).ok()
bool is_required(const Json& schema, std::string_view name);

// kUnsupported behind the place of a property, which is "#/properties/NAME".
std::string property_place(std::string_view name);
Status unsupported_at(std::string_view place, std::string_view what);

}  // namespace headrace
