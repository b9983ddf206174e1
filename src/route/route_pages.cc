#include "route/route_pages.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/rng.h"
#include "route/json_members.h"
#include "server/error_response.h"

namespace headrace {
namespace {

constexpr std::string_view kWorkers = "/workers";

HttpResponse json_response(const Json& body) {
  HttpResponse response;
  response.body = write_json(body);
  return response;
}

HttpResponse health_page(RouteContext& context) {
  if (!context.table.anybody_up()) return error_response(503, "no worker is up");
  return json_response(Json::object().set("status", "ok"));
}

HttpResponse metrics_page(RouteContext& context) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.metrics.expose(context.table.snapshot());
  return response;
}

// Those of all workers, and the names that stand for several.
HttpResponse models_page(RouteContext& context, bool made_ones) {
  Json data = Json::array();
  const auto add = [&](const std::string& name, int64_t tokens_max) {
    Json card = Json::object().set("id", name).set("object", "model").set("created", 0);
    card.set("owned_by", "headrace");
    card.set("max_model_len", tokens_max > 0 ? Json(tokens_max) : Json());
    if (const ModelCost* cost = context.aliases.cost_of(name)) {
      card.set("pricing", Json::object()
                              .set("prompt", fmt::format("{:.9f}", cost->input * 1e-6))
                              .set("completion", fmt::format("{:.9f}", cost->output * 1e-6)));
    }
    data.push(std::move(card));
  };
  for (const ServedModelName& model : context.table.models()) {
    if (made_ones || !model.made) add(model.name, model.tokens_max);
  }
  for (const std::string& name : context.aliases.names()) add(name, 0);
  return json_response(Json::object().set("object", "list").set("data", std::move(data)));
}

// Of a model whose file is not asked for: what Ollama's clients cannot do without.
Json ollama_card(const std::string& name) {
  std::string digest;
  uint64_t hash = checksum64(std::as_bytes(std::span(name)));
  for (int i = 0; i < 4; ++i) digest += fmt::format("{:016x}", hash = mix64(hash));
  Json card = Json::object().set("name", name).set("model", name).set("size", 0);
  card.set("modified_at", "1970-01-01T00:00:00Z").set("digest", std::move(digest));
  Json details = Json::object().set("parent_model", "").set("format", "").set("family", "");
  details.set("families", Json::array()).set("parameter_size", "").set("quantization_level", "");
  return card.set("details", std::move(details));
}

Json worker_json(const WorkerSnapshot& worker) {
  Json models = Json::array();
  for (const std::string& model : worker.models) models.push(model);
  Json json = Json::object().set("id", worker.id);
  json.set("url", fmt::format("http://{}:{}", worker.target->host, worker.target->port));
  json.set("state", worker_state_name(worker.state)).set("models", std::move(models));
  json.set("in_flight", worker.in_flight).set("requests_there", worker.told_requests);
  json.set("load_tokens", worker.load_tokens).set("prefix_blocks", worker.prefix_blocks);
  json.set("requests", worker.counts.requests).set("errors", worker.counts.errors);
  return json.set("retries", worker.counts.retries).set("resumes", worker.counts.resumes);
}

HttpResponse workers_page(RouteContext& context) {
  Json all = Json::array();
  for (const WorkerSnapshot& worker : context.table.snapshot()) all.push(worker_json(worker));
  return json_response(Json::object().set("workers", std::move(all)));
}

HttpResponse add_worker(RouteContext& context, const HttpRequest& request) {
  const Result<Json> body = parse_json(request.body);
  const Json* url = body.ok() ? body->find("url") : nullptr;
  if (!url || !url->is_string()) {
    return error_response(400, "the body must be {\"url\": \"http://HOST:PORT\"}", "url");
  }
  const Result<HttpTarget> target = parse_worker_url(url->as_string());
  if (!target.ok()) return error_response(target.status());
  return json_response(Json::object().set("id", context.table.add(*target)));
}

// /workers/{id}, /workers/{id}/drain, /workers/{id}/undrain
HttpResponse change_worker(RouteContext& context, const HttpRequest& request) {
  std::string_view rest = std::string_view(request.path).substr(kWorkers.size() + 1);
  int id = -1;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), id);
  rest.remove_prefix(static_cast<size_t>(read.ptr - rest.data()));
  const bool drains = rest == "/drain";
  bool done = false;
  if (read.ec != std::errc() || !(rest.empty() || drains || rest == "/undrain")) {
    return error_response(404, "there is no such page of a worker: /workers/{id}/drain, /undrain");
  }
  if (rest.empty() && request.method == "DELETE") {
    done = context.table.remove(id);
  } else if (!rest.empty() && request.method == "POST") {
    done = context.table.drain(id, drains);
  } else {
    return error_response(405, "DELETE removes a worker; POST /workers/{id}/drain, /undrain");
  }
  if (!done) return error_response(404, fmt::format("there is no worker {}: GET /workers", id));
  return workers_page(context);
}

}  // namespace

// Not of aliases, which no worker shows: clients ask for that of each name of a list.
HttpResponse served_models_tags(RouteContext& context) {
  Json models = Json::array();
  for (const ServedModelName& model : context.table.models()) {
    if (!model.made) models.push(ollama_card(model.name));
  }
  return json_response(Json::object().set("models", std::move(models)));
}

bool shows_served_model(RouteContext& context, std::string_view body) {
  std::string_view named;
  int names = 0;
  for (JsonMembers members(body); members.next();) {
    const std::string_view key = members.key();
    const bool is_name = key == "model" || key == "name" || key.find('\\') != key.npos;
    if (is_name && ++names == 1) named = json_string(members.value());
  }
  constexpr std::string_view kLatest = ":latest";
  if (named.ends_with(kLatest)) named.remove_suffix(kLatest.size());
  const std::vector<ServedModelName> models = context.table.models();
  return names == 1 && std::ranges::any_of(models, [&](const ServedModelName& model) {
           return !model.made && model.name == named;
         });
}

PageAccess route_page_access(const HttpRequest& request) {
  const std::string_view path = request.path;
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (get && (path == "/health" || path == "/ping" || path == "/metrics")) return PageAccess::kOpen;
  if (path == kWorkers || path.starts_with("/workers/")) return PageAccess::kAdmin;
  if (get && (path == "/v1/models" || path == "/models")) return PageAccess::kKey;
  return PageAccess::kNone;
}

HttpResponse answer_route_page(RouteContext& context, const HttpRequest& request,
                               PageRights rights) {
  const std::string_view path = request.path;
  if (path == "/metrics") return metrics_page(context);
  if (path.ends_with("/models")) return models_page(context, rights.sees_made_models);
  if (!path.starts_with(kWorkers)) return health_page(context);
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (path == kWorkers && get) return workers_page(context);
  if (!rights.may_change) {
    return error_response(403,
                          "the list of workers is changed with the key of --admin-key, or without "
                          "any on a router that has no API keys and listens on 127.0.0.1");
  }
  if (path == kWorkers && request.method == "POST") return add_worker(context, request);
  if (path == kWorkers) return error_response(405, "GET lists workers, POST adds one");
  return change_worker(context, request);
}

}  // namespace headrace
