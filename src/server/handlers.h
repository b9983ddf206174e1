// The handlers behind the route table (routes.inc), one file per concern.
#pragma once

#include "server/router.h"

namespace headrace {

#define ROUTE(method, path, auth, limit, model, handler) void handler(RouteCall& call);
#include "server/routes.inc"
#undef ROUTE

// For all of them: 200 with a JSON body.
void respond_json(RouteCall& call, const Json& body);
// 404 for a model that is not served; `model` may be empty.
Status check_model_name(const ReadyModel& model, const std::string& name);

}  // namespace headrace
