// What the routes take, told in OpenAPI 3.1. The readers of bodies say it themselves: each notes
// its fields while it reads an example, so that no list is kept beside them.
#pragma once

#include <string>

#include "base/json.h"
#include "server/router.h"

namespace headrace {

// A body of a route that works as it is; "" where no body is known, as of routes that refuse all.
std::string_view example_body(const Route& route);

// Of all routes() under the default limits.
Json openapi_document();

// The same as a page for people: one file without scripts.
std::string openapi_page(const Json& document);

}  // namespace headrace
