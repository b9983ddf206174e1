// The one table of routes: path, method, who may call, what the body may be. Authentication,
// method checks and limits are decided here from that table alone, so a route cannot forget them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/server_state.h"

namespace headrace {

enum class AuthClass : uint8_t {
  kOpen,     // never needs a key
  kMetrics,  // needs the key of metrics, or any, when the server has one of metrics
  kKey,      // needs one when the server has any
};

enum class LimitClass : uint8_t {
  kNoBody,  // the body is not looked at
  kJson,  // the body is one JSON object under RequestLimits; the handler is called on a text thread
  kUpload,  // the handler reads the body, which may be larger than others (HttpLimits)
};

enum class ModelClass : uint8_t {
  kAnyTime,  // answers also while loading and draining
  kServing,  // as those below, without a model: of one that comes and goes it does not wait
  // These: 503 while the server is draining, or its one model is loaded at the start. Of several
  // models a JSON body's `model` is loaded for the request; other routes' (?model=) must be loaded.
  kReady,     // 400 where the model generates nothing
  kAnyModel,  // any model
  // 400 where the model does not do that:
  kEmbeds,      // gives embeddings
  kScores,      // compares two texts: a head of one class, or embeddings
  kClassifies,  // has a head, of any number of classes
  kEncodes,     // is an encoder, with a head or without
  kNotServed,   // no model does: always 400 (not_served.h)
};

// Whose request it is.
struct Caller {
  int key = -1;      // the place of its API key; -1: the server asks for none
  bool job = false;  // of a batch job, not from the network

  // Under which files and batches are kept, and the tenant of its requests; "" without keys.
  std::string owner(const ApiKeys& keys) const { return key < 0 ? std::string() : keys.name(key); }
};

// What a handler gets. `body` is null unless kJson, `model` as its ModelClass says.
struct RouteCall {
  ServerState& state;
  HttpRequest& request;  // the handler may take its body
  Caller caller;
  std::string parameter;  // what stands for {id}, percent-decoded
  Json body;
  // What the request calls its model, where that was made of another (made_models.h): the body
  // names that one now. Empty: the body is as it came.
  std::string shown_model;
  std::shared_ptr<Exchange> exchange;
  ModelLease model;
  double load_seconds = 0;  // that the request has waited for it to be loaded
  // Runs the handler once more, from a body that is read anew, with its model. Any thread.
  std::function<void(ModelLease)> again;
};

struct Route {
  std::string_view method;
  std::string_view path;  // "/{id}" at its end: the rest of the path, slashes included; else a part
  AuthClass auth = AuthClass::kKey;
  LimitClass limit = LimitClass::kNoBody;
  ModelClass model = ModelClass::kReady;
  void (*handle)(RouteCall& call) = nullptr;
};

std::span<const Route> routes();

// Calls `handle` with the model that the request names; it may be loaded before, and then `again`
// leads here. REQUIRES: kind is neither kAnyTime nor kServing; on a thread that may handle the call
void with_model(RouteCall& call, ModelClass kind, void (*handle)(RouteCall& call));

// The place of the model that a request names, by its body or its query. kNotFound,
// kInvalidArgument: there is none.
Result<size_t> find_model(const RouteCall& call);

// Answers `request` through `exchange`, now or later. On the exchange's strand.
void route_request(ServerState& state, HttpRequest request,
                   const std::shared_ptr<Exchange>& exchange);
// The same for a request whose sender is known: no key is asked for.
void route_request_of(ServerState& state, const Caller& caller, HttpRequest request,
                      const std::shared_ptr<Exchange>& exchange);
// What can be said of a request with a body before a byte of it is read: what its route makes of
// the body, or what to answer instead.
struct HeadVerdict {
  LimitClass limit = LimitClass::kNoBody;
  std::optional<HttpResponse> refusal;
};
HeadVerdict judge_head(const ServerState& state, const HttpRequest& head);
// Headers every answer to `request` carries: leave for web pages to read it.
std::vector<HttpHeader> common_headers(const ServerState& state, const HttpRequest& request);

}  // namespace headrace
