// Routes that other servers have and this one has not: refused by name, with what there is instead.
// Their rows in routes.inc are of ModelClass::kNotServed.
#pragma once

#include <string_view>

#include "server/http_message.h"

namespace headrace {

// 400 for the route of that path, as routes.inc has it. REQUIRES: its row is kNotServed
HttpResponse not_served(std::string_view route);
// Whether there is a reason for it: tests look for each row.
bool has_reason_not_served(std::string_view route);

}  // namespace headrace
