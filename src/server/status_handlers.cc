#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/batch_service.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

Json model_card(const ReadyModel& model, const std::string& name) {
  Json card = Json::object();
  card.set("id", name).set("object", "model").set("created", model.served.created_unix_s);
  card.set("owned_by", "headrace").set("root", model.served.names.front()).set("parent", Json());
  card.set("max_model_len", model.served.max_model_len).set("permission", Json::array());
  return card;
}

// The keys that have limits, with what they were refused.
std::vector<EdgeStats::Key> limited_keys(const ServerState& state) {
  std::vector<EdgeStats::Key> keys;
  for (int place = 0; place < static_cast<int>(state.keys.size()); ++place) {
    const KeyQuota* quota = state.quotas.of(place);
    if (!quota) continue;
    EdgeStats::Key key{.name = state.keys.label(place)};
    for (int kind = 0; kind < kQuotaKindCount; ++kind) {
      key.refusals[static_cast<size_t>(kind)] = quota->refusals(static_cast<QuotaKind>(kind));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// Pins by the labels of their keys.
std::vector<PinCounts> labelled_pins(const ServerState& state) {
  std::vector<PinCounts> pins = state.pins->counts();
  for (PinCounts& counts : pins) {
    const int place = state.keys.find_name(counts.owner);
    if (place >= 0) counts.owner = state.keys.label(place);
  }
  return pins;
}

// Requests of the model that run or wait.
int64_t requests_open(const ServerState& state) {
  const ReadyModel* model = state.model();
  if (!model || model->generates()) return static_cast<int64_t>(state.sessions.count());
  const EmbeddingStats stats = model->served.embedder->stats();
  return int64_t{stats.requests_running} + stats.requests_waiting;
}

}  // namespace

void respond_json(RouteCall& call, const Json& body) {
  HttpResponse response;
  response.body = write_json(body);
  call.exchange->respond(std::move(response));
}

Status check_model_name(const ReadyModel& model, const std::string& name) {
  if (model.serves(name)) return ok_status();
  return not_found(
      fmt::format("there is no model \"{}\" here: /v1/models lists what is served", name), "model");
}

// A statement about progress: ready to answer, now.
void handle_health(RouteCall& call) {
  const ReadyModel* model = call.state.model();
  if (call.state.draining)
    return call.exchange->respond(error_response(503, "the server is shutting down"));
  if (!model) return call.exchange->respond(error_response(503, "Loading model"));
  if (!model->healthy()) {
    return call.exchange->respond(error_response(503, "the engine makes no progress"));
  }
  Json body = Json::object();
  body.set("status", "ok");
  respond_json(call, body);
}

void handle_metrics(RouteCall& call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (const ReadyModel* model = call.state.model()) {
    const EngineStats stats = model->stats();
    EdgeStats edge{.keys = limited_keys(call.state), .pins = labelled_pins(call.state)};
    BatchCounts batches;
    if (call.state.batches) {
      batches = call.state.batches->counts();
      edge.batches = &batches;
    }
    if (call.state.traces) edge.traces = call.state.traces->counts();
    response.body = model->metrics->expose(&stats, edge);
  }
  call.exchange->respond(std::move(response));
}

void handle_version(RouteCall& call) {
  Json body = Json::object();
  body.set("version", HEADRACE_VERSION);
  respond_json(call, body);
}

void handle_load(RouteCall& call) {
  Json body = Json::object();
  body.set("server_load", requests_open(call.state));
  respond_json(call, body);
}

void handle_models(RouteCall& call) {
  const ReadyModel& model = *call.state.model();
  Json data = Json::array();
  for (const std::string& name : model.served.names) data.push(model_card(model, name));
  Json body = Json::object();
  body.set("object", "list").set("data", std::move(data));
  respond_json(call, body);
}

void handle_model(RouteCall& call) {
  const ReadyModel& model = *call.state.model();
  const Status known = check_model_name(model, call.parameter);
  if (!known.ok()) return call.exchange->respond(error_response(known));
  respond_json(call, model_card(model, call.parameter));
}

}  // namespace headrace
