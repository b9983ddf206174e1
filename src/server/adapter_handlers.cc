// Routes that load and unload adapters, as vLLM and SGLang have them, and llama.cpp's list.
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "engine/adapter_bank.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

bool is_sglangs(const RouteCall& call) { return !call.request.path.starts_with("/v1/"); }

void respond_done(RouteCall& call, const std::string& text) {
  if (!is_sglangs(call)) {
    HttpResponse response;
    response.content_type = "text/plain; charset=utf-8";
    response.body = "Success: " + text;
    return call.exchange->respond(std::move(response));
  }
  Json loaded = Json::object();
  for (const auto& entry : call.model->served.adapters->list()) {
    loaded.set(entry.spec.name, entry.spec.path);
  }
  respond_json(call, Json::object().set("success", true).set("loaded_adapters", loaded));
}

// The bank that may change; nullptr, and it is answered, where there is none.
AdapterBank* changeable_bank(RouteCall& call) {
  const ServedModel& served = call.model->served;
  if (served.adapters == nullptr || !served.adapters_change) {
    call.exchange->respond(error_response(
        400, fmt::format("{} is not supported: the server was started without --enable-lora",
                         call.request.path)));
    return nullptr;
  }
  if (call.state.model() == nullptr) {
    call.exchange->respond(error_response(
        400, fmt::format("{} is for one model that stays: of models that come and go name adapters "
                         "at the start (--lora-modules)",
                         call.request.path)));
    return nullptr;
  }
  return served.adapters;
}

Result<std::string> text_field(const RouteCall& call, std::string_view name) {
  const Json* const value = call.body.find(name);
  const size_t most = call.state.limits.label_bytes_max;
  if (value == nullptr || !value->is_string() || value->as_string().empty() ||
      value->as_string().size() > std::max<size_t>(most, 4096)) {
    return invalid_argument(fmt::format("{} must be a text", name), std::string(name));
  }
  return value->as_string();
}

Result<AdapterSpec> adapter_of_body(const RouteCall& call) {
  AdapterSpec spec;
  HR_ASSIGN_OR_RETURN(spec.name, text_field(call, "lora_name"));
  HR_ASSIGN_OR_RETURN(spec.path, text_field(call, "lora_path"));
  if (call.model->serves_itself(spec.name)) {
    return invalid_argument(
        fmt::format("{} is the model's own name: name the adapter otherwise", spec.name),
        "lora_name");
  }
  return spec;
}

}  // namespace

void handle_load_adapter(RouteCall& call) {
  AdapterBank* const bank = changeable_bank(call);
  if (bank == nullptr) return;
  const Result<AdapterSpec> spec = adapter_of_body(call);
  if (!spec.ok()) return call.exchange->respond(bad_request_response(spec.status()));
  const Json* const in_place = call.body.find("load_inplace");
  const bool replaces = in_place != nullptr && *in_place == Json(true);
  const Status status = replaces ? bank->replace(*spec) : bank->load(*spec);
  if (!status.ok()) {
    const int code = status.code() == StatusCode::kNotFound ? 404 : 400;
    return call.exchange->respond(error_response(code, status.message(), "lora_path"));
  }
  respond_done(call, fmt::format("LoRA adapter '{}' added successfully.", spec->name));
}

// Requests under way end with it.
void handle_unload_adapter(RouteCall& call) {
  AdapterBank* const bank = changeable_bank(call);
  if (bank == nullptr) return;
  const Result<std::string> name = text_field(call, "lora_name");
  if (!name.ok()) return call.exchange->respond(bad_request_response(name.status()));
  const Status status = bank->unload(*name);
  if (!status.ok()) return call.exchange->respond(error_response(status));
  respond_done(call, fmt::format("LoRA adapter '{}' removed successfully.", *name));
}

// That of requests which name the model itself.
void handle_lora_adapters(RouteCall& call) {
  Json adapters = Json::array();
  const ServedModel& served = call.model->served;
  if (served.adapters != nullptr) {
    for (const auto& entry : served.adapters->list()) {
      if (entry.spec.name != served.adapter_of_all) continue;
      adapters.push(Json::object()
                        .set("id", 0)
                        .set("path", std::filesystem::path(entry.spec.path).filename().string())
                        .set("scale", entry.spec.scale));
    }
  }
  respond_json(call, adapters);
}

}  // namespace headrace
