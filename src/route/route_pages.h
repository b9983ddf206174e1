// What the router answers itself: its health, its metrics, the models of all workers, and the list
// of workers, which changes by requests.
#pragma once

#include <optional>

#include "route/route_context.h"
#include "server/exchange.h"

namespace headrace {

// Who may call a page of the router.
enum class PageAccess { kNone /* no page of it */, kOpen, kKey, kAdmin /* and kKey */ };
PageAccess route_page_access(const HttpRequest& request);

// /api/tags where all clients are one to the workers: what they serve, and nothing that a client
// has made. A worker's own answer would have those too.
HttpResponse served_models_tags(RouteContext& context);
// Whether the body of /api/show names one of them, beyond doubt.
bool shows_served_model(RouteContext& context, std::string_view body);

struct PageRights {
  bool may_change = false;        // the list of workers
  bool sees_made_models = false;  // of the client that the router is to its workers
};
// REQUIRES: a page of the router.
HttpResponse answer_route_page(RouteContext& context, const HttpRequest& request,
                               PageRights rights);

}  // namespace headrace
