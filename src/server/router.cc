#include "server/router.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "base/log.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/model_wait.h"
#include "server/not_served.h"
#include "server/query.h"

namespace headrace {
namespace {

constexpr auto kOpen = AuthClass::kOpen;
constexpr auto kMetrics = AuthClass::kMetrics;
constexpr auto kKey = AuthClass::kKey;
constexpr auto kNoBody = LimitClass::kNoBody;
constexpr auto kJson = LimitClass::kJson;
constexpr auto kUpload = LimitClass::kUpload;
constexpr auto kAnyTime = ModelClass::kAnyTime;
constexpr auto kServing = ModelClass::kServing;
constexpr auto kReady = ModelClass::kReady;
constexpr auto kAnyModel = ModelClass::kAnyModel;
constexpr auto kEmbeds = ModelClass::kEmbeds;
constexpr auto kScores = ModelClass::kScores;
constexpr auto kClassifies = ModelClass::kClassifies;
constexpr auto kEncodes = ModelClass::kEncodes;
constexpr auto kNotServed = ModelClass::kNotServed;

constexpr Route kRoutes[] = {
#define ROUTE(method, path, auth, limit, model, handler) \
  {method, path, auth, limit, model, handler},
#include "server/routes.inc"
#undef ROUTE
};

constexpr std::string_view kParameter = "{id}";

// What stands for {id}, "" for a route without, or nothing when the path is another.
std::optional<std::string> match_path(const Route& route, std::string_view path) {
  const size_t at = route.path.find(kParameter);
  if (at == route.path.npos) {
    return route.path == path ? std::optional(std::string()) : std::nullopt;
  }
  const std::string_view before = route.path.substr(0, at);
  const std::string_view after = route.path.substr(at + kParameter.size());
  if (path.size() <= before.size() + after.size()) return std::nullopt;
  if (!path.starts_with(before) || !path.ends_with(after)) return std::nullopt;
  const std::string_view id =
      path.substr(before.size(), path.size() - before.size() - after.size());
  if (!after.empty() && id.find('/') != id.npos) return std::nullopt;
  return percent_decode(id);
}

struct Match {
  const Route* route = nullptr;      // method and path
  const Route* path_only = nullptr;  // the path, perhaps with another method
  std::string parameter;
};

// HEAD is GET without the body, which the connection leaves out (RFC 9110 9.3.2): a body after it
// would be taken for the next answer.
Match find_route(const HttpRequest& request) {
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  Match match;
  for (const Route& route : kRoutes) {
    auto parameter = match_path(route, request.path);
    if (!parameter) continue;
    match.path_only = &route;
    if (route.method != method) continue;
    match.route = &route;
    match.parameter = std::move(*parameter);
    break;
  }
  return match;
}

HttpResponse method_not_allowed(const HttpRequest& request) {
  const std::string_view path = request.path;
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!match_path(route, path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method;
  }
  // Of a preflight that is allowed nobody asks here.
  const bool preflight = request.method == "OPTIONS" && !request.header("origin").empty();
  HttpResponse response =
      error_response(405, fmt::format("this route takes {} only{}", allowed,
                                      preflight ? ": pages of that origin may not ask here, see "
                                                  "--allowed-origins"
                                                : ""));
  response.headers.push_back({"Allow", allowed});
  return response;
}

HttpResponse not_ready(std::string_view message) {
  HttpResponse response = error_response(503, message);
  response.close = true;
  return response;
}

bool may_read_metrics(const ServerState& state, const HttpRequest& request, AuthClass auth) {
  return auth == AuthClass::kMetrics &&
         (!state.metrics_keys.required() || state.metrics_keys.find(request) >= 0);
}

// Whose request it is; nothing when it needs an API key and has none of ours.
std::optional<Caller> find_caller(const ServerState& state, const HttpRequest& request,
                                  const Match& match) {
  const AuthClass auth = match.path_only ? match.path_only->auth : AuthClass::kKey;
  const int key = state.keys.required() ? state.keys.find(request) : -1;
  const bool open = auth == AuthClass::kOpen || may_read_metrics(state, request, auth) ||
                    (auth == AuthClass::kKey && !state.keys.required());
  return key >= 0 || open ? std::optional(Caller{.key = key}) : std::nullopt;
}

HttpResponse unauthorized() { return error_response(401, "a valid API key is required"); }

// Why a model that generates text does not answer a route for vectors and scores.
std::string refusal_of_decoder(ModelClass kind, std::string_view path) {
  if (kind == ModelClass::kEmbeds) {
    return "the served model generates text: start the server with --embedding for vectors of "
           "texts, or with a model that is made for them";
  }
  return fmt::format(
      "{} is not supported: the served model generates text: start the server with --embedding "
      "for scores by vectors, or with a model that has a head for them",
      path);
}

// The same of a model of vectors, with a head or without; "": it answers.
std::string refusal_of_embedder(ModelClass kind, std::string_view path,
                                const ClassifierHead& head) {
  const std::string_view answers = !head           ? "/v1/embeddings, /api/embed, /v1/score"
                                   : head.scores() ? "/v1/rerank, /v1/score, /classify"
                                                   : "/classify";
  if (kind == ModelClass::kReady) {
    return fmt::format(
        "the server runs the model for vectors or scores, and it generates no text: it answers {} "
        "and /tokenize",
        answers);
  }
  if (kind == ModelClass::kEmbeds && head) {
    return fmt::format(
        "{} is not supported: the model is a classifier, which gives no embeddings: it answers {}",
        path, answers);
  }
  if (kind == ModelClass::kScores && head && !head.scores()) {
    return fmt::format(
        "{} is not supported: the model tells {} classes, and a score is of one: it answers {}",
        path, head.labels.size(), answers);
  }
  if (kind == ModelClass::kClassifies && !head) {
    return fmt::format("{} is not supported: the model has no head for classes: it answers {}",
                       path, answers);
  }
  return "";
}

// Whether the model does what the route at `path` is for.
std::optional<HttpResponse> refuse_model(const ReadyModel& model, ModelClass kind,
                                         std::string_view path) {
  const bool any = kind == ModelClass::kAnyModel || kind == ModelClass::kServing;
  if (any || (kind == ModelClass::kReady && model.generates())) return std::nullopt;
  const std::string why =
      model.generates() ? refusal_of_decoder(kind, path)
                        : refusal_of_embedder(kind, path, model.served.embedder->runner().head());
  return why.empty() ? std::nullopt : std::optional(error_response(400, why));
}

// Everything that can be refused before a handler runs.
std::optional<HttpResponse> refuse(const ServerState& state, const HttpRequest& request,
                                   const Match& match) {
  if (!match.path_only) {
    const bool twice = request.path.starts_with("/v1/v1/");
    return error_response(404, twice ? "there is no such route: the client's base URL and the path "
                                       "both have /v1"
                                     : "there is no such route: those of the OpenAI API are under "
                                       "/v1");
  }
  if (!match.route) return method_not_allowed(request);
  if (match.route->model == kNotServed) return not_served(match.route->path);
  if (match.route->limit == LimitClass::kJson) {
    if (auto refusal = refuse_content_type(request)) return refusal;
  }
  if (match.route->limit != LimitClass::kNoBody) {
    if (auto refusal = refuse_content_encoding(request)) return refusal;
  }
  if (match.route->model == ModelClass::kAnyTime) return std::nullopt;
  if (state.draining) return not_ready("the server is shutting down");
  if (!state.models.is_open()) return not_ready("Loading model");
  const ReadyModel* const only = state.model();
  return only ? refuse_model(*only, match.route->model, match.route->path) : std::nullopt;
}

// A request with its route, for as long as it waits for a thread or its model.
struct Routed {
  ServerState& state;
  const Caller caller;
  HttpRequest request;
  Match match;
  const std::shared_ptr<Exchange> exchange;
  ModelLease model;         // once it was waited for
  double load_seconds = 0;  // that it was waited for
};

// Of a request to a model that a client has made, one to what it was made of.
void put_base_of_made_model(RouteCall& call) {
  if (!takes_made_models(call.request.path)) return;
  const Json* name = call.body.find("model");
  if (!name || !name->is_string()) return;
  const auto made =
      call.state.made_models.find(call.caller.owner(call.state.keys), name->as_string());
  if (!made) return;
  call.shown_model = name->as_string();
  apply_made_model(*made, call.request.path, call.body);
}

void handle_on_text_thread(const std::shared_ptr<Routed>& routed);

void handle_matched(const std::shared_ptr<Routed>& routed) {
  const Route& route = *routed->match.route;
  RouteCall call{.state = routed->state,
                 .request = routed->request,
                 .caller = routed->caller,
                 .parameter = routed->match.parameter,
                 .exchange = routed->exchange,
                 .model = std::move(routed->model),
                 .load_seconds = routed->load_seconds};
  if (route.limit == LimitClass::kJson) {
    Result<Json> body = parse_json(call.request.body, call.state.json_limits());
    if (!body.ok()) {
      return call.exchange->respond(error_response(400, "the body: " + body.status().message()));
    }
    if (!body->is_object())
      return call.exchange->respond(error_response(400, "the body must be a JSON object"));
    call.body = std::move(*body);
    put_base_of_made_model(call);
    call.again = [routed, began = call.state.clock.now_seconds()](ModelLease model) {
      routed->model = std::move(model);
      routed->load_seconds += routed->state.clock.now_seconds() - began;
      handle_on_text_thread(routed);
    };
  }
  if (route.model == kAnyTime || route.model == kServing) return route.handle(call);
  with_model(call, route.model, route.handle);
}

void handle_safely(const std::shared_ptr<Routed>& routed) {
  try {  // no exception crosses the request's boundary; libraries below may throw (memory)
    handle_matched(routed);
  } catch (const std::exception& error) {
    log_error("a request handler threw; answered 500: {}", error.what());
    routed->exchange->respond(error_response(500, "internal error"));
  }
}

void handle_on_text_thread(const std::shared_ptr<Routed>& routed) {
  const bool taken = routed->state.text_pool.run([routed] { handle_safely(routed); });
  if (!taken) {
    routed->exchange->respond(too_many_requests("too many requests wait to be read", 1));
  }
}

// What reads a body may take long: it has threads of its own. A job has one already.
void route_matched(ServerState& state, const Caller& caller, HttpRequest request, Match match,
                   const std::shared_ptr<Exchange>& exchange) {
  if (auto refusal = refuse(state, request, match)) return exchange->respond(std::move(*refusal));
  const bool reads = match.route->limit == LimitClass::kJson && !caller.job;
  const std::shared_ptr<Routed> routed(
      new Routed{state, caller, std::move(request), std::move(match), exchange, nullptr});
  return reads ? handle_on_text_thread(routed) : handle_safely(routed);
}

bool origin_allowed(const ServerState& state, std::string_view origin) {
  return !origin.empty() && is_safe_header_value(origin, 256) &&
         std::any_of(
             state.allowed_origins.begin(), state.allowed_origins.end(),
             [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

// What clients in a browser send and read. OpenAI's adds x-stainless-*, of which more come with
// every version, so a preflight is answered with the names that it asks for.
constexpr std::string_view kAllowedHeaders = "Authorization, Content-Type, X-API-Key, X-Request-Id";
constexpr std::string_view kExposed =
    "X-Request-Id, request-id, Retry-After, retry-after-ms, x-cache-pin, "
    "x-ratelimit-limit-requests, "
    "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens";

// Names of headers with commas between them.
bool is_name_list(std::string_view text) {
  constexpr size_t kBytesMax = 2048;
  return !text.empty() && text.size() <= kBytesMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

bool is_preflight(const ServerState& state, const HttpRequest& request) {
  return request.method == "OPTIONS" && origin_allowed(state, request.header("origin"));
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Result<size_t> find_model(const RouteCall& call) {
  std::string name = query_value(call.request.query, "model").value_or("");
  const Json* named = call.body.is_object() ? call.body.find("model") : nullptr;
  // Ollama's older clients.
  if (!named && call.body.is_object() && call.request.path.starts_with("/api/")) {
    named = call.body.find("name");
  }
  if (named && named->is_string()) name = named->as_string();
  const bool may_have_tag = call.request.path.starts_with("/api/") && !call.state.models.find(name);
  if (may_have_tag) name = without_latest(std::move(name));
  if (const auto place = call.state.models.find(name)) return *place;
  if (name.empty()) {
    return invalid_argument("model is missing: /v1/models lists those that are served", "model");
  }
  return unknown_model(name);
}

void with_model(RouteCall& call, ModelClass kind, void (*handle)(RouteCall& call)) {
  ModelPool& models = call.state.models;
  const bool waits = call.again != nullptr;  // a JSON body: it is for the model to work on
  if (!call.model) {
    const Result<size_t> place = find_model(call);
    if (!place.ok()) return call.exchange->respond(error_response(place.status()));
    call.model = waits ? models.try_acquire(*place) : models.look_at(*place);
    if (!call.model && waits) {
      return wait_for_model(call.state, call.exchange, *place, ModelPool::Why::kRequest,
                            call.again);
    }
    if (!call.model) {
      const ModelStatus status = models.status(*place);
      return call.exchange->respond(error_response(
          503, fmt::format("model {} is not in memory ({}): POST /models/load, or a request to it, "
                           "loads it",
                           status.names.front(), model_state_name(status.state))));
    }
  }
  if (auto refusal = refuse_model(*call.model, kind, call.request.path)) {
    return call.exchange->respond(std::move(*refusal));
  }
  handle(call);
}

void route_request(ServerState& state, HttpRequest request,
                   const std::shared_ptr<Exchange>& exchange) {
  if (auto refusal = state.guard.refuse(request, state.allowed_origins)) {
    return exchange->respond(std::move(*refusal));
  }
  if (is_preflight(state, request)) {
    HttpResponse response;
    response.content_type.clear();
    return exchange->respond(std::move(response));
  }
  Match match = find_route(request);
  const std::optional<Caller> caller = find_caller(state, request, match);
  if (!caller) return exchange->respond(unauthorized());
  route_matched(state, *caller, std::move(request), std::move(match), exchange);
}

void route_request_of(ServerState& state, const Caller& caller, HttpRequest request,
                      const std::shared_ptr<Exchange>& exchange) {
  Match match = find_route(request);
  route_matched(state, caller, std::move(request), std::move(match), exchange);
}

HeadVerdict judge_head(const ServerState& state, const HttpRequest& head) {
  if (auto refusal = state.guard.refuse(head, state.allowed_origins)) {
    return {.refusal = std::move(refusal)};
  }
  if (is_preflight(state, head)) return {};
  const Match match = find_route(head);
  if (!find_caller(state, head, match)) return {.refusal = unauthorized()};
  if (auto refusal = refuse(state, head, match)) return {.refusal = std::move(refusal)};
  return {.limit = match.route->limit};
}

std::vector<HttpHeader> common_headers(const ServerState& state, const HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (!origin_allowed(state, origin)) return {};
  std::vector<HttpHeader> headers = {{"Access-Control-Allow-Origin", std::string(origin)},
                                     {"Vary", "Origin"},
                                     {"Access-Control-Expose-Headers", std::string(kExposed)}};
  if (request.method != "OPTIONS") return headers;
  headers.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE"});
  const std::string_view asked = request.header("access-control-request-headers");
  headers.push_back(
      {"Access-Control-Allow-Headers", std::string(is_name_list(asked) ? asked : kAllowedHeaders)});
  headers.push_back({"Access-Control-Max-Age", "7200"});  // the most that browsers keep
  return headers;
}

}  // namespace headrace
