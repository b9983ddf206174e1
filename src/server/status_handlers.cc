#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log_tail.h"
#include "engine/adapter_bank.h"
#include "server/batch_service.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/ollama_format.h"
#include "server/query.h"

namespace headrace {
namespace {

Json model_card(const ModelStatus& model, const std::string& name) {
  Json card = Json::object();
  card.set("id", name).set("object", "model").set("created", model.created_unix_s);
  card.set("owned_by", "headrace").set("root", model.names.front()).set("parent", Json());
  card.set("max_model_len", model.max_model_len > 0 ? Json(model.max_model_len) : Json());
  card.set("permission", Json::array());
  if (model.stays) return card;
  Json status = Json::object().set("value", model_state_name(model.state));
  if (!model.error.ok()) status.set("failed", true).set("error", model.error.message());
  return card.set("status", std::move(status));
}

// A card as Anthropic's API has it, whose clients name their version of it.
Json anthropic_card(const Json& card) {
  const std::string& name = card.find("id")->as_string();
  Json json = Json::object().set("type", "model").set("id", name).set("display_name", name);
  return json.set("created_at", rfc3339(card.find("created")->as_int()));
}

bool is_of_anthropic(const RouteCall& call) {
  return !call.request.header("anthropic-version").empty();
}

Json anthropic_list(const Json::Array& cards) {
  Json data = Json::array();
  for (const Json& card : cards) data.push(anthropic_card(card));
  Json first, last;
  if (!cards.empty()) {
    first = *cards.front().find("id");
    last = *cards.back().find("id");
  }
  Json json = Json::object().set("data", std::move(data)).set("has_more", false);
  return json.set("first_id", std::move(first)).set("last_id", std::move(last));
}

// Its root is the adapter, its parent the model that it lies over.
Json adapter_card(const ModelStatus& model, const AdapterSpec& adapter) {
  return model_card(model, adapter.name)
      .set("root", std::filesystem::path(adapter.path).filename().string())
      .set("parent", model.names.front());
}

// Those of a model that requests can name.
std::vector<AdapterSpec> named_adapters(ServerState& state, size_t place) {
  std::vector<AdapterSpec> all;
  const ModelLease model = state.models.look_at(place);
  if (!model || model->served.adapters == nullptr) return all;
  for (const auto& entry : model->served.adapters->list()) {
    if (entry.spec.name != model->served.adapter_of_all) all.push_back(entry.spec);
  }
  return all;
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

std::vector<EdgeStats::OpenRequests> requests_by_key(const ServerState& state) {
  std::vector<EdgeStats::OpenRequests> all;
  for (const auto& [tenant, counts] : state.sessions.by_tenant()) {
    const int place = state.keys.find_name(tenant);
    if (place < 0) continue;
    all.push_back({state.keys.label(place), counts.running, counts.waiting});
  }
  return all;
}

// Pins by the labels of their keys.
std::vector<PinCounts> labelled_pins(const ServerState& state, const ReadyModel& model) {
  std::vector<PinCounts> pins = model.pins->counts();
  for (PinCounts& counts : pins) {
    const int place = state.keys.find_name(counts.owner);
    if (place >= 0) counts.owner = state.keys.label(place);
  }
  return pins;
}

// Requests of the models that run or wait.
int64_t requests_open(ServerState& state) {
  auto count = static_cast<int64_t>(state.sessions.count());
  for (const ModelLease& model : state.models.loaded()) {
    if (model->generates()) continue;
    const EmbeddingStats stats = model->served.embedder->stats();
    count += int64_t{stats.requests_running} + stats.requests_waiting;
  }
  return count;
}

// By the names that requests give them, in the order of their loads.
OpenAdapters open_adapters(const ServerState& state, const ReadyModel& model) {
  OpenAdapters open;
  if (model.served.adapters == nullptr) return open;
  open.count_max = model.served.adapters->count_max();
  const auto counts = state.sessions.by_adapter(model);
  for (const auto& [spec, adapter] : model.served.adapters->list()) {
    const auto at = counts.find(adapter->key());
    if (at == counts.end()) continue;
    if (at->second.running > 0) open.running.push_back(spec.name);
    if (at->second.waiting > 0) open.waiting.push_back(spec.name);
  }
  return open;
}

// What all models share is told with the first.
std::vector<ServerMetrics::Exposed> exposed_models(ServerState& state, const BatchCounts* batches) {
  std::vector<ServerMetrics::Exposed> all;
  if (!state.models.is_open()) return all;
  for (size_t place = 0; place < state.models.size(); ++place) {
    ServerMetrics::Exposed& model = all.emplace_back();
    model.metrics = state.models.metrics(place);
    if (const ModelLease loaded = state.models.look_at(place)) {
      model.metrics = std::shared_ptr<ServerMetrics>(loaded, model.metrics.get());
      model.stats = [loaded] { return loaded->stats(); };
      model.edge.pins = labelled_pins(state, *loaded);
      model.adapters = open_adapters(state, *loaded);
    }
    if (place > 0) continue;
    model.edge.keys = limited_keys(state);
    model.edge.requests = requests_by_key(state);
    model.edge.batches = batches;
    if (state.traces) model.edge.traces = state.traces->counts();
  }
  return all;
}

// What /v1/models lists under this name, which Ollama's clients end in a tag; nothing: no such.
std::optional<Json> find_card(RouteCall& call, const std::string& name) {
  ModelPool& models = call.state.models;
  const ReadyModel* const only = call.state.model();
  for (const std::string& each : {name, without_latest(name)}) {
    const auto place = models.find(each);
    if (!place || (only && !only->serves(each))) continue;
    const ModelStatus status = models.status(*place);
    for (const AdapterSpec& adapter : named_adapters(call.state, *place)) {
      if (adapter.name == each) return adapter_card(status, adapter);
    }
    return model_card(status, each);
  }
  const auto made = call.state.made_models.find(call.caller.owner(call.state.keys), name);
  const auto base = made ? models.find(made->base) : std::nullopt;
  if (!base) return std::nullopt;
  return model_card(models.status(*base), made->name).set("made", true);
}

}  // namespace

void respond_json(RouteCall& call, const Json& body) {
  HttpResponse response;
  response.body = write_json(body);
  call.exchange->respond(std::move(response));
}

Status unknown_model(std::string_view name) {
  return not_found(
      fmt::format("there is no model \"{}\" here: /v1/models lists what is served", name), "model");
}

Status check_model_name(const ReadyModel& model, const std::string& name) {
  return model.serves(name) ? ok_status() : unknown_model(name);
}

// A statement about progress: ready to answer, now. (Also with a model that is loaded first.)
void handle_health(RouteCall& call) {
  if (call.state.draining)
    return call.exchange->respond(error_response(503, "the server is shutting down"));
  if (!call.state.models.is_open()) {
    return call.exchange->respond(error_response(503, "Loading model"));
  }
  for (const ModelLease& model : call.state.models.loaded()) {
    const Status health = model->health();
    if (!health.ok()) return call.exchange->respond(error_response(503, health.message()));
  }
  Json body = Json::object();
  body.set("status", "ok");
  respond_json(call, body);
}

void handle_metrics(RouteCall& call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  BatchCounts batches;
  if (call.state.batches) batches = call.state.batches->counts();
  response.body =
      ServerMetrics::expose(exposed_models(call.state, call.state.batches ? &batches : nullptr));
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

// The engine's last steps, for a timeline.
void handle_steps(RouteCall& call) {
  const auto after = query_integer(call.request.query, "after", 0, 0, INT64_MAX);
  if (!after.ok()) return call.exchange->respond(error_response(after.status()));
  Json steps = Json::array();
  for (const PastStep& step :
       call.model->served.engine->recent_steps(static_cast<uint64_t>(*after))) {
    Json row = Json::object();
    row.set("number", static_cast<int64_t>(step.number)).set("age_seconds", step.age);
    row.set("seconds", step.seconds).set("sequences", step.sequences);
    row.set("prompt_tokens", step.prompt_tokens).set("decode_tokens", step.decode_tokens);
    steps.push(std::move(row));
  }
  respond_json(call, Json::object().set("object", "list").set("data", std::move(steps)));
}

// The last lines of the log. They name requests and addresses of all clients: where several keys
// are, nobody who has one is told of the others.
void handle_log(RouteCall& call) {
  if (call.state.keys.size() > 1) {
    return call.exchange->respond(
        error_response(403,
                       "the log tells of all clients: a server with several API keys shows "
                       "it on its stderr alone"));
  }
  const auto after = query_integer(call.request.query, "after", 0, 0, INT64_MAX);
  if (!after.ok()) return call.exchange->respond(error_response(after.status()));
  Json lines = Json::array();
  for (LoggedLine& line : log_tail(static_cast<uint64_t>(*after))) {
    lines.push(Json::object()
                   .set("number", static_cast<int64_t>(line.number))
                   .set("text", std::move(line.text)));
  }
  respond_json(call, Json::object().set("object", "list").set("data", std::move(lines)));
}

void handle_models(RouteCall& call) {
  Json data = Json::array();
  for (size_t place = 0; place < call.state.models.size(); ++place) {
    const ModelStatus model = call.state.models.status(place);
    for (const std::string& name : model.names) data.push(model_card(model, name));
    for (const AdapterSpec& adapter : named_adapters(call.state, place)) {
      data.push(adapter_card(model, adapter));
    }
  }
  for (const auto& made : call.state.made_models.all(call.caller.owner(call.state.keys))) {
    const auto place = call.state.models.find(made->base);
    if (!place) continue;
    data.push(model_card(call.state.models.status(*place), made->name).set("made", true));
  }
  if (is_of_anthropic(call)) return respond_json(call, anthropic_list(data.as_array()));
  Json body = Json::object();
  body.set("object", "list").set("data", std::move(data));
  respond_json(call, body);
}

void handle_model(RouteCall& call) {
  const std::optional<Json> card = find_card(call, call.parameter);
  if (!card) return call.exchange->respond(error_response(unknown_model(call.parameter)));
  respond_json(call, is_of_anthropic(call) ? anthropic_card(*card) : *card);
}

}  // namespace headrace
