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

}  // namespace

void handle_pins(RouteCall& call) {
  Json data = Json::array();
  for (const CachePin& pin : call.state.pins->list(call.caller.owner(call.state.keys))) {
    data.push(pin_json(pin));
  }
  Json json = Json::object();
  json.set("object", "list").set("data", std::move(data));
  respond_json(call, json);
}

void handle_delete_pin(RouteCall& call) {
  if (!call.state.pins->remove(call.caller.owner(call.state.keys), call.parameter)) {
    return call.exchange->respond(error_response(404, "there is no pin of that id", "pin_id"));
  }
  Json json = Json::object();
  json.set("id", call.parameter).set("object", "cache_pin").set("deleted", true);
  respond_json(call, json);
}

}  // namespace headrace
