// Ollama's routes that make models: /api/create, /api/copy, /api/delete. A made model is a served
// one by another name, with a system turn and parameters (made_models.h); no file is written.
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/error_response.h"
#include "server/handlers.h"
#include "server/made_models.h"
#include "server/ollama_request.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr size_t kMadeNameBytesMax = 128;
constexpr size_t kMadeBytesMax = 64 << 10;  // of a system turn and parameters

bool if_said(const Json& v) { return v != Json("") && v != Json::array() && v != Json::object(); }

constexpr RefusedField kCreateRefused[] = {
    {"template", if_said, "the chat template of the model's own file is the one (--chat-template)"},
    {"adapters", if_said, "adapters are loaded by /v1/load_lora_adapter, and named as models"},
    {"files", if_said, "from names a model that is served: nothing is fetched or made of files"},
    {"quantize", if_said, "models are served as they are"},
    {"messages", if_said, "send them with each request"},
    {"path", if_said, "send the text of the file as modelfile"},
    {"requires", if_said},
};

Result<std::string> name_member(const Json& body, std::string_view key) {
  const Json* value = body.find(key);
  if (!value || value->is_null()) {
    return invalid_argument(fmt::format("{} is missing", key), std::string(key));
  }
  const bool good = value->is_string() && !value->as_string().empty() &&
                    is_safe_header_value(value->as_string(), kMadeNameBytesMax);
  if (good) return without_latest(value->as_string());
  return field_error(
      key, fmt::format("1 to {} printable characters without spaces", kMadeNameBytesMax), *value);
}

// `model`, or `name` as older clients call it.
Result<std::string> model_member(const Json& body) {
  return name_member(body, body.find("model") ? "model" : "name");
}

bool is_served(const ServerState& state, std::string_view name) {
  const ReadyModel* const only = state.model();
  return only ? only->serves(name) : state.models.find(name).has_value();
}

// What the new model begins as: a served model, or one that was made before.
Result<MadeModel> origin_of(const RouteCall& call, const std::string& from,
                            std::string_view field) {
  if (const auto made = call.state.made_models.find(call.caller.owner(call.state.keys), from)) {
    return *made;
  }
  if (!is_served(call.state, from)) {
    return not_found(
        fmt::format("{} must be a model that is served (/api/tags lists them): nothing "
                    "is fetched, and no file is read",
                    field),
        std::string(field));
  }
  return MadeModel{.name = "", .base = from, .system = "", .parameters = Json::object()};
}

Status add_parameters(const Json& parameters, const FieldContext& context, MadeModel& model) {
  if (!parameters.is_object()) return field_error("parameters", "an object", parameters);
  for (const auto& [name, value] : parameters.as_object()) model.parameters.set(name, value);
  const Json as_options = Json::object().set("options", model.parameters);
  const Status status = parse_ollama_request(OllamaRoute::kChat, as_options, context).status();
  if (status.ok()) return status;
  std::string_view message = status.message();
  constexpr std::string_view kOptions = "options.";
  if (message.starts_with(kOptions)) message.remove_prefix(kOptions.size());
  return invalid_argument(fmt::format("parameters.{}", message), "parameters");
}

// The body of a Modelfile and what stands beside it; that goes before the file.
Result<Json> whole_create_body(const Json& body) {
  const Json* text = body.find("modelfile");
  if (!text || text->is_null()) return body;
  if (!text->is_string()) return field_error("modelfile", "a string", *text);
  HR_ASSIGN_OR_RETURN(Json whole, modelfile_json(text->as_string()));
  for (const auto& [name, value] : body.as_object()) {
    if (!value.is_null()) whole.set(name, value);
  }
  return whole;
}

Result<MadeModel> read_made_model(const RouteCall& call) {
  HR_ASSIGN_OR_RETURN(const std::string name, model_member(call.body));
  HR_ASSIGN_OR_RETURN(const Json body, whole_create_body(call.body));
  HR_RETURN_IF_ERROR(check_refused(kCreateRefused, body));
  HR_ASSIGN_OR_RETURN(const std::string from, name_member(body, "from"));
  HR_ASSIGN_OR_RETURN(MadeModel model, origin_of(call, from, "from"));
  model.name = name;
  model.created_unix_s = unix_seconds();
  if (const Json* system = body.find("system"); system && !system->is_null()) {
    if (!system->is_string()) return field_error("system", "a string", *system);
    model.system = system->as_string();
  }
  const Json* parameters = body.find("parameters");
  const FieldContext context{.limits = call.state.limits};
  if (parameters && !parameters->is_null()) {
    HR_RETURN_IF_ERROR(add_parameters(*parameters, context, model));
  }
  if (model.system.size() + write_json(model.parameters).size() > kMadeBytesMax) {
    return invalid_argument(
        fmt::format("system and parameters must be at most {} bytes together", kMadeBytesMax),
        "system");
  }
  return model;
}

// A served name stays whose it is.
Status keep_made_model(RouteCall& call, MadeModel model, std::string_view field) {
  if (is_served(call.state, model.name)) {
    return invalid_argument(fmt::format("{} is the name of a served model: choose another", field),
                            std::string(field));
  }
  return call.state.made_models.put(call.caller.owner(call.state.keys), std::move(model));
}

void respond_done(RouteCall& call, std::string_view step) {
  const Json done = Json::object().set("status", "success");
  const Json* stream = call.body.find("stream");
  if (stream && *stream == Json(false)) return respond_json(call, done);
  HttpResponse response;
  response.content_type = "application/x-ndjson";
  response.body = write_json(Json::object().set("status", step)) + "\n" + write_json(done) + "\n";
  call.exchange->respond(std::move(response));
}

void respond_nothing(RouteCall& call) {
  HttpResponse response;
  response.body = "";
  call.exchange->respond(std::move(response));
}

}  // namespace

void handle_ollama_create(RouteCall& call) {
  const Json* stream = call.body.find("stream");
  if (stream && !stream->is_null() && !stream->is_bool()) {
    return call.exchange->respond(error_response(field_error("stream", "true or false", *stream)));
  }
  Result<MadeModel> model = read_made_model(call);
  const Status status =
      model.ok() ? keep_made_model(call, *std::move(model), "model") : model.status();
  if (!status.ok()) return call.exchange->respond(error_response(status));
  respond_done(call, "using existing layers");
}

void handle_ollama_copy(RouteCall& call) {
  const Result<std::string> source = name_member(call.body, "source");
  const Result<std::string> destination = name_member(call.body, "destination");
  if (!source.ok()) return call.exchange->respond(error_response(source.status()));
  if (!destination.ok()) return call.exchange->respond(error_response(destination.status()));
  Result<MadeModel> model = origin_of(call, *source, "source");
  if (!model.ok()) return call.exchange->respond(error_response(model.status()));
  model->name = *destination;
  model->created_unix_s = unix_seconds();
  const Status status = keep_made_model(call, *std::move(model), "destination");
  if (!status.ok()) return call.exchange->respond(error_response(status));
  respond_nothing(call);
}

void handle_ollama_delete(RouteCall& call) {
  const Result<std::string> name = model_member(call.body);
  if (!name.ok()) return call.exchange->respond(error_response(name.status()));
  if (call.state.made_models.erase(call.caller.owner(call.state.keys), *name)) {
    return respond_nothing(call);
  }
  if (!is_served(call.state, *name))
    return call.exchange->respond(error_response(unknown_model(*name)));
  call.exchange->respond(error_response(
      400, "model is served for as long as the server runs: only what /api/create made is removed",
      "model"));
}

}  // namespace headrace
