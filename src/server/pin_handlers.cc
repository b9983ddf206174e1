// /v1/cache/pins: the prompts that a client asked to keep.
#include "server/cache_pins.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

Json pin_json(const CachePin& pin) {
  Json json = Json::object();
  json.set("id", pin.id).set("object", "cache_pin").set("tokens", pin.tokens);
  json.set("created_at", pin.created_unix_s).set("expires_at", pin.expires_unix_s);
  return json;
}

// A client that flushes behind its last answer may be ahead of the end of that request.
constexpr int kFlushTries = 20;
constexpr double kFlushPause = 0.05;

// Pins are promises to others: they are not broken, nor those that are made meanwhile.
bool has_pins(const ReadyModel& model) {
  model.pins->expire();
  for (const PinCounts& counts : model.pins->counts()) {
    if (counts.pins > 0) return true;
  }
  return false;
}

void flush_cache(const ModelLease& model, const std::shared_ptr<Exchange>& exchange,
                 const std::string& path, int tries) {
  if (has_pins(*model)) {
    return exchange->respond(error_response(
        400, path + " is refused while prompts are pinned: DELETE /v1/cache/pins/{id} ends a pin"));
  }
  Engine& engine = *model->served.engine;
  engine.clear_prefix_cache([model, exchange, path, tries](bool cleared) {
    if (cleared) {
      HttpResponse response;
      response.content_type = "text/plain; charset=utf-8";
      response.body = "Cache flushed.\n";
      return exchange->respond(std::move(response));
    }
    if (tries <= 1) {
      return exchange->respond(error_response(
          400, path + " is refused while requests run or wait: nothing was forgotten"));
    }
    exchange->call_after(kFlushPause, [model, exchange, path, tries] {
      flush_cache(model, exchange, path, tries - 1);
    });
  });
}

}  // namespace

void handle_pins(RouteCall& call) {
  Json data = Json::array();
  for (const CachePin& pin : call.model->pins->list(call.caller.owner(call.state.keys))) {
    data.push(pin_json(pin));
  }
  Json json = Json::object();
  json.set("object", "list").set("data", std::move(data));
  respond_json(call, json);
}

void handle_delete_pin(RouteCall& call) {
  if (!call.model->pins->remove(call.caller.owner(call.state.keys), call.parameter)) {
    return call.exchange->respond(error_response(404, "there is no pin of that id", "pin_id"));
  }
  Json json = Json::object();
  json.set("id", call.parameter).set("object", "cache_pin").set("deleted", true);
  respond_json(call, json);
}

// SGLang's, and vLLM's reset_prefix_cache.
void handle_flush_cache(RouteCall& call) {
  flush_cache(call.model, call.exchange, call.request.path, kFlushTries);
}

}  // namespace headrace
