#include "server/router.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/log.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

constexpr auto kOpen = AuthClass::kOpen;
constexpr auto kKey = AuthClass::kKey;
constexpr auto kNoBody = LimitClass::kNoBody;
constexpr auto kJson = LimitClass::kJson;
constexpr auto kAnyTime = ModelClass::kAnyTime;
constexpr auto kReady = ModelClass::kReady;

// Open: what load balancers and scrapers call without a key. All else needs one.
constexpr Route kRoutes[] = {
    {"GET", "/health", kOpen, kNoBody, kAnyTime, handle_health},
    {"GET", "/v1/health", kOpen, kNoBody, kAnyTime, handle_health},
    {"GET", "/ping", kOpen, kNoBody, kAnyTime, handle_health},
    {"POST", "/ping", kOpen, kNoBody, kAnyTime, handle_health},
    {"GET", "/metrics", kOpen, kNoBody, kAnyTime, handle_metrics},
    {"GET", "/version", kKey, kNoBody, kAnyTime, handle_version},
    {"GET", "/load", kKey, kNoBody, kAnyTime, handle_load},
    {"GET", "/v1/models", kKey, kNoBody, kReady, handle_models},
    {"GET", "/v1/models/{id}", kKey, kNoBody, kReady, handle_model},
    {"POST", "/v1/completions", kKey, kJson, kReady, handle_completions},
    {"POST", "/v1/chat/completions", kKey, kJson, kReady, handle_chat_completions},
    {"POST", "/tokenize", kKey, kJson, kReady, handle_tokenize},
    {"POST", "/detokenize", kKey, kJson, kReady, handle_detokenize},
    {"POST", "/apply-template", kKey, kJson, kReady, handle_apply_template},
};

constexpr std::string_view kParameter = "{id}";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decode(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    if (!escape) {
      result += text[i];
      continue;
    }
    result += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
    i += 2;
  }
  return result;
}

// What stands for {id}, "" for a route without, or nothing when the path is another.
std::optional<std::string> match_path(const Route& route, std::string_view path) {
  if (!route.path.ends_with(kParameter)) {
    return route.path == path ? std::optional(std::string()) : std::nullopt;
  }
  const std::string_view prefix = route.path.substr(0, route.path.size() - kParameter.size());
  if (!path.starts_with(prefix) || path.size() == prefix.size()) return std::nullopt;
  return percent_decode(path.substr(prefix.size()));
}

struct Match {
  const Route* route = nullptr;      // method and path
  const Route* path_only = nullptr;  // the path, perhaps with another method
  std::string parameter;
};

Match find_route(const HttpRequest& request) {
  Match match;
  for (const Route& route : kRoutes) {
    auto parameter = match_path(route, request.path);
    if (!parameter) continue;
    match.path_only = &route;
    if (route.method != request.method) continue;
    match.route = &route;
    match.parameter = std::move(*parameter);
    break;
  }
  return match;
}

HttpResponse method_not_allowed(std::string_view path) {
  HttpResponse response = error_response(405, "this path has another method");
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!match_path(route, path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method;
  }
  response.headers.push_back({"Allow", allowed});
  return response;
}

HttpResponse not_ready(std::string_view message) {
  HttpResponse response = error_response(503, message);
  response.close = true;
  return response;
}

// Everything that can be refused before a handler runs.
std::optional<HttpResponse> refuse(const ServerState& state, const HttpRequest& request,
                                   const Match& match) {
  const bool open = match.path_only && match.path_only->auth == AuthClass::kOpen;
  if (!open && !state.keys.admits(request))
    return error_response(401, "a valid API key is required");
  if (!match.path_only) return error_response(404, "there is no such route");
  if (!match.route) return method_not_allowed(request.path);
  if (match.route->model == ModelClass::kAnyTime) return std::nullopt;
  if (state.draining) return not_ready("the server is shutting down");
  if (!state.model()) return not_ready("Loading model");
  return std::nullopt;
}

void handle_matched(ServerState& state, const HttpRequest& request, Match match,
                    const std::shared_ptr<Exchange>& exchange) {
  RouteCall call{state, request, std::move(match.parameter), Json(), exchange};
  if (match.route->limit == LimitClass::kJson) {
    Result<Json> body = parse_json(request.body, state.limits.json);
    if (!body.ok()) {
      return exchange->respond(
          error_response(400, "the body is not valid JSON: " + body.status().message()));
    }
    if (!body->is_object())
      return exchange->respond(error_response(400, "the body must be a JSON object"));
    call.body = std::move(*body);
  }
  match.route->handle(call);
}

bool origin_allowed(const ServerState& state, std::string_view origin) {
  return !origin.empty() && is_safe_header_value(origin, 256) &&
         std::any_of(
             state.allowed_origins.begin(), state.allowed_origins.end(),
             [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool is_preflight(const ServerState& state, const HttpRequest& request) {
  return request.method == "OPTIONS" && origin_allowed(state, request.header("origin"));
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

void route_request(ServerState& state, const HttpRequest& request,
                   const std::shared_ptr<Exchange>& exchange) {
  if (is_preflight(state, request)) {
    HttpResponse response;
    response.content_type.clear();
    return exchange->respond(std::move(response));
  }
  Match match = find_route(request);
  if (auto refusal = refuse(state, request, match)) return exchange->respond(std::move(*refusal));
  try {  // no exception crosses the request's boundary; libraries below may throw (memory)
    handle_matched(state, request, std::move(match), exchange);
  } catch (const std::exception&) {
    log_error("a request handler threw; answered 500");
    exchange->respond(error_response(500, "internal error"));
  }
}

std::vector<HttpHeader> common_headers(const ServerState& state, const HttpRequest& request) {
  std::vector<HttpHeader> headers;
  const std::string_view id = request.header("x-request-id");
  if (is_safe_header_value(id, state.limits.label_bytes_max)) {
    headers.push_back({"X-Request-Id", std::string(id)});
  }
  const std::string_view origin = request.header("origin");
  if (origin_allowed(state, origin)) {
    headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
    headers.push_back({"Vary", "Origin"});
    if (request.method == "OPTIONS") {
      headers.push_back({"Access-Control-Allow-Methods", "GET, POST"});
      headers.push_back(
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-API-Key, X-Request-Id"});
    }
  }
  return headers;
}

}  // namespace headrace
