// The one table of routes: path, method, who may call, what the body may be. Authentication,
// method checks and limits are decided here from that table alone, so a route cannot forget them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/server_state.h"

namespace headrace {

enum class AuthClass : uint8_t {
  kOpen,  // never needs a key
  kKey,   // needs one when the server has any
};

enum class LimitClass : uint8_t {
  kNoBody,  // the body is not looked at
  kJson,    // the body is one JSON object under RequestLimits
};

enum class ModelClass : uint8_t {
  kAnyTime,  // answers also while loading and draining
  kReady,    // 503 unless a model is ready and the server is not draining
};

// What a handler gets. `body` is null for kNoBody.
struct RouteCall {
  ServerState& state;
  const HttpRequest& request;
  std::string parameter;  // what stands for {id}, percent-decoded
  Json body;
  std::shared_ptr<Exchange> exchange;
};

struct Route {
  std::string_view method;
  std::string_view path;  // may end in "/{id}": the rest of the path, slashes included
  AuthClass auth = AuthClass::kKey;
  LimitClass limit = LimitClass::kNoBody;
  ModelClass model = ModelClass::kReady;
  void (*handle)(RouteCall& call) = nullptr;
};

std::span<const Route> routes();

// Answers `request` through `exchange`, now or later. On the exchange's strand.
void route_request(ServerState& state, const HttpRequest& request,
                   const std::shared_ptr<Exchange>& exchange);
// Headers every answer to `request` carries: its X-Request-Id, and leave for browsers.
std::vector<HttpHeader> common_headers(const ServerState& state, const HttpRequest& request);

}  // namespace headrace
