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
Status unknown_model(std::string_view name);
// The place of the model that a body of Ollama's names. kNotFound: it is not served.
Result<size_t> find_ollama_model(RouteCall& call);
// Ollama's keep_alive, where models come and go: how long the call's model stays behind it.
void follow_keep_alive(RouteCall& call);

}  // namespace headrace
