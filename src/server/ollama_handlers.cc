// Routes of Ollama's API that answer and tell (those that make models: ollama_models.cc). What
// would fetch a model is refused, in Ollama's form of errors (error_response.h).
#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"
#include "server/chat_input.h"
#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/ollama_format.h"
#include "server/ollama_request.h"

namespace headrace {
namespace {

// Whose API this is. Clients ask for it, and some want a version that is new enough for tools and
// thoughts.
constexpr std::string_view kOllamaVersion = "0.12.6";
// "Forever", as Ollama says it of keep_alive -1.
constexpr int64_t kForeverUnixSeconds = 10'981'785'600;

Status check_ollama_request(const ReadyModel& model, OllamaRequest& request) {
  std::string& name = request.chat.settings.model;
  name = served_name(model, std::move(name));
  HR_RETURN_IF_ERROR(check_model_name(model, name));
  if (request.think_level.empty() || (model.chat && model.chat->may_read("reasoning_effort"))) {
    return ok_status();
  }
  return invalid_argument(
      fmt::format(
          "think \"{}\" is not supported by this model, whose chat template reads no level: "
          "send true or false",
          request.think_level),
      "think");
}

// num_predict is a bound, not a promise: what the context leaves is enough.
AnswerWording ollama_wording(const ReadyModel& model, OllamaRoute route,
                             GenerationSettings& settings) {
  const int32_t length = settings.max_tokens.value_or(length_otherwise(model, settings));
  settings.max_tokens.reset();
  return {.id_prefix = "ollama-",
          .make_format =
              [route](AnswerHead head) { return make_ollama_format(route, std::move(head)); },
          .max_tokens_otherwise = length,
          .prompt_name = route == OllamaRoute::kChat ? "messages" : "prompt"};
}

Result<GenerationPlan> plan_ollama_chat(const ReadyModel& model, const FieldContext& context,
                                        const Json& body) {
  HR_ASSIGN_OR_RETURN(OllamaRequest request,
                      parse_ollama_request(OllamaRoute::kChat, body, context));
  HR_RETURN_IF_ERROR(check_ollama_request(model, request));
  const bool named = request.chat.settings.max_tokens.has_value();
  const AnswerWording wording = ollama_wording(model, OllamaRoute::kChat, request.chat.settings);
  auto plan = plan_chat(model, std::move(request.chat), wording);
  if (named) plan = with_named_length(std::move(plan));
  return plan;
}

Json turn(std::string_view role, std::string text) {
  return Json::object().set("role", role).set("content", std::move(text));
}

// A prompt is a chat of one turn, unless it is raw or the model has no template.
Result<GenerationPlan> plan_ollama_generate(const ReadyModel& model, const FieldContext& context,
                                            const Json& body) {
  HR_ASSIGN_OR_RETURN(OllamaRequest request,
                      parse_ollama_request(OllamaRoute::kGenerate, body, context));
  HR_RETURN_IF_ERROR(check_ollama_request(model, request));
  const bool named = request.chat.settings.max_tokens.has_value();
  const AnswerWording wording =
      ollama_wording(model, OllamaRoute::kGenerate, request.chat.settings);
  if (model.chat && !request.raw && request.suffix.empty()) {
    Json messages = Json::array();
    if (!request.system.empty()) messages.push(turn("system", std::move(request.system)));
    messages.push(turn("user", std::move(request.prompt)));
    request.chat.messages = std::move(messages);
    auto plan = plan_chat(model, std::move(request.chat), wording);
    if (named) plan = with_named_length(std::move(plan));
    return plan;
  }
  if (!request.system.empty()) {
    return invalid_argument(
        "system is not part of a raw prompt, of one with a suffix, nor of one to a model without a "
        "chat template: write it into the prompt",
        "system");
  }
  CompletionRequest completion;
  completion.settings = std::move(request.chat.settings);
  completion.texts = {std::move(request.prompt)};
  completion.parse_special = request.raw;
  completion.suffix = std::move(request.suffix);
  if (!completion.suffix.empty()) HR_RETURN_IF_ERROR(put_before_suffix(model, completion));
  auto plan = plan_completion(model, std::move(completion), wording);
  if (named) plan = with_named_length(std::move(plan));
  return plan;
}

bool has_prompt(const RouteCall& call, OllamaRoute route) {
  const Json* prompt = call.body.find(route == OllamaRoute::kChat ? "messages" : "prompt");
  return prompt && !prompt->is_null() && *prompt != Json("") && *prompt != Json::array();
}

// A request without a prompt asks for the model to be loaded, which it is.
void answer_or_load(RouteCall& call, OllamaRoute route, const MakePlan& make_plan) {
  follow_keep_alive(call);
  if (has_prompt(call, route)) return generate(call, make_plan);
  const ReadyModel& model = *call.model;
  auto request =
      parse_ollama_request(route, call.body, call.state.context_of(model, call.shown_model));
  const Status status = request.ok() ? check_ollama_request(model, *request) : request.status();
  if (!status.ok()) return call.exchange->respond(bad_request_response(status));
  const GenerationSettings& settings = request->chat.settings;
  const std::string& name = settings.shown_model.empty() ? settings.model : settings.shown_model;
  Json json = ollama_line(route, name.empty() ? model.served.names.front() : name, "", true);
  respond_json(call, json.set("done_reason", "load"));
}

// One that says keep_alive 0, too, asks for it to be unloaded; it is not loaded for that.
void answer_or_unload(RouteCall& call, OllamaRoute route, void (*answer)(RouteCall&)) {
  const Json* keep_alive = call.body.find("keep_alive");
  const bool goes = call.state.models.options().follows_keep_alive && keep_alive &&
                    keep_alive_seconds(*keep_alive) == 0.0 && !has_prompt(call, route);
  if (!goes) return with_model(call, ModelClass::kReady, answer);
  const Result<size_t> place = find_model(call);
  if (!place.ok()) return call.exchange->respond(error_response(place.status()));
  const std::string name = call.state.models.status(*place).names.front();
  call.state.models.unload(
      *place, ModelState::kUnloaded, [exchange = call.exchange, route, name](const Status& status) {
        if (!status.ok()) return exchange->respond(error_response(status));
        HttpResponse response;
        response.body = write_json(ollama_line(route, name, "", true).set("done_reason", "unload"));
        exchange->respond(std::move(response));
      });
}

// --- What there is ---

std::string short_count(int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", number / 1e9);
  return fmt::format("{:.2f}M", number / 1e6);
}

Json ollama_details(const ModelFacts& facts) {
  Json json = Json::object();
  json.set("parent_model", "").set("format", facts.is_gguf() ? "gguf" : "safetensors");
  json.set("family", facts.architecture).set("families", Json::Array{Json(facts.architecture)});
  json.set("parameter_size", short_count(facts.parameter_count));
  return json.set("quantization_level", facts.weight_types);
}

// Of name, path and size: files of many gigabytes are not hashed.
std::string digest_of(const std::string& name, const ModelFacts& facts) {
  uint64_t hash = mix64(static_cast<uint64_t>(facts.file_bytes));
  for (char c : name + '\n' + facts.path) {
    hash = mix64(hash ^ static_cast<unsigned char>(c));
  }
  std::string digest;
  for (uint64_t i = 0; i < 4; ++i) digest += fmt::format("{:016x}", mix64(hash + i));
  return digest;
}

Json ollama_model(const ModelStatus& model, const std::string& name) {
  Json json = Json::object();
  json.set("name", name).set("model", name);
  json.set("size", model.facts.file_bytes);
  json.set("digest", digest_of(model.names.front(), model.facts));
  return json.set("details", ollama_details(model.facts));
}

std::vector<ModelStatus> all_models(const ServerState& state) {
  std::vector<ModelStatus> models;
  for (size_t place = 0; place < state.models.size(); ++place) {
    models.push_back(state.models.status(place));
  }
  return models;
}

Json capabilities(const ReadyModel& model) {
  Json json = Json::array();
  if (model.generates()) json.push("completion");
  if (!model.generates() && !model.served.embedder->runner().head()) json.push("embedding");
  if (model.fill_in) json.push("insert");
  if (model.output.tools) json.push("tools");
  if (model.output.reasoning) json.push("thinking");
  return json;
}

// GGUF's names, as far as they are known here.
Json model_info(const ReadyModel& model) {
  const ModelFacts& facts = model.served.facts;
  const std::string& name = facts.architecture;
  Json json = Json::object();
  json.set("general.architecture", name).set("general.parameter_count", facts.parameter_count);
  // What is served: clients ask for as much.
  const int32_t served = model.served.max_model_len;
  json.set(name + ".context_length",
           facts.context_length > 0 ? std::min(facts.context_length, served) : served);
  json.set(name + ".embedding_length", facts.hidden).set(name + ".block_count", facts.layers);
  if (model.served.tokenizer) {
    json.set("tokenizer.ggml.model", model.served.tokenizer->vocab().model);
  }
  return json;
}

// What the model's makers suggest, as lines of a Modelfile.
std::string parameters_text(const ServedModel& served) {
  const SamplingDefaults& sampling = served.sampling;
  std::string text = fmt::format("num_ctx {}\n", served.max_model_len);
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) text += fmt::format("{} {}\n", name, *value);
  };
  add("temperature", sampling.temperature);
  add("top_k", sampling.top_k);
  add("top_p", sampling.top_p);
  add("min_p", sampling.min_p);
  add("repeat_penalty", sampling.repetition_penalty);
  add("num_predict", sampling.max_new_tokens);
  return text;
}

// Of a model that is not loaded: what is known of its file. Asking loads none, as clients ask for
// each that is listed.
Json shown_file(const ModelStatus& model) {
  Json json = Json::object();
  json.set("modelfile", "FROM " + model.names.front() + "\n").set("parameters", "");
  json.set("template", "").set("details", ollama_details(model.facts));
  json.set("model_info", Json::object()).set("capabilities", Json::array());
  return json.set("modified_at", rfc3339(model.created_unix_s));
}

Json shown_model(const ReadyModel& model) {
  const ChatTemplate* chat_template = model.served.chat_template;
  Json json = Json::object();
  json.set("modelfile", "FROM " + model.served.names.front() + "\n");
  json.set("parameters", parameters_text(model.served));
  json.set("template", chat_template ? chat_template->source() : std::string_view());
  json.set("details", ollama_details(model.served.facts)).set("model_info", model_info(model));
  json.set("capabilities", capabilities(model));
  return json.set("modified_at", rfc3339(model.served.created_unix_s));
}

// That of the body's name; nullptr: no client has made one.
MadeModels::Made find_made_model(const RouteCall& call) {
  const Json* name = call.body.find("model");
  if (!name || name->is_null()) name = call.body.find("name");
  if (!name || !name->is_string()) return nullptr;
  return call.state.made_models.find(call.caller.owner(call.state.keys), name->as_string());
}

}  // namespace

Result<size_t> find_ollama_model(RouteCall& call) {
  const Json* name = call.body.find("model");
  if (!name || name->is_null()) name = call.body.find("name");  // as it was called before
  if (name && !name->is_string()) {
    return field_error("model", "a string", *name);
  }
  HR_ASSIGN_OR_RETURN(const size_t place, find_model(call));
  if (const ModelLease model = call.state.models.look_at(place); model && name) {
    HR_RETURN_IF_ERROR(check_model_name(*model, served_name(*model, name->as_string())));
  }
  return place;
}

void handle_ollama_version(RouteCall& call) {
  respond_json(call, Json::object().set("version", kOllamaVersion));
}

void handle_ollama_chat(RouteCall& call) {
  answer_or_unload(call, OllamaRoute::kChat, [](RouteCall& loaded) {
    answer_or_load(loaded, OllamaRoute::kChat, plan_ollama_chat);
  });
}

void handle_ollama_generate(RouteCall& call) {
  answer_or_unload(call, OllamaRoute::kGenerate, [](RouteCall& loaded) {
    answer_or_load(loaded, OllamaRoute::kGenerate, plan_ollama_generate);
  });
}

void handle_ollama_tags(RouteCall& call) {
  Json models = Json::array();
  for (const ModelStatus& model : all_models(call.state)) {
    for (const std::string& name : model.names) {
      models.push(ollama_model(model, name).set("modified_at", rfc3339(model.created_unix_s)));
    }
  }
  for (const auto& made : call.state.made_models.all(call.caller.owner(call.state.keys))) {
    const auto place = call.state.models.find(made->base);
    if (!place) continue;
    Json json = ollama_model(call.state.models.status(*place), made->name);
    models.push(json.set("modified_at", rfc3339(made->created_unix_s)));
  }
  respond_json(call, Json::object().set("models", std::move(models)));
}

void handle_ollama_ps(RouteCall& call) {
  Json models = Json::array();
  for (const ModelStatus& model : all_models(call.state)) {
    if (model.state != ModelState::kReady) continue;
    Json json = ollama_model(model, model.names.front());
    json.set("size", model.facts.memory_bytes).set("size_vram", model.facts.gpu_bytes);
    const double left = std::min(model.idle_in_seconds, kForeverUnixSeconds * 1.0);
    const int64_t ends = unix_seconds() + static_cast<int64_t>(left);
    json.set("expires_at", rfc3339(std::min(ends, kForeverUnixSeconds)));
    models.push(json.set("context_length", model.max_model_len));
  }
  respond_json(call, Json::object().set("models", std::move(models)));
}

void handle_ollama_show(RouteCall& call) {
  const bool named = call.body.find("model") != nullptr || call.body.find("name") != nullptr;
  if (!named) return call.exchange->respond(error_response(400, "model is missing", "model"));
  const MadeModels::Made made = find_made_model(call);
  if (made) call.body.set("model", made->base);
  const Result<size_t> place = find_ollama_model(call);
  if (!place.ok()) return call.exchange->respond(error_response(place.status()));
  const ModelLease model = call.state.models.look_at(*place);
  Json json = model ? shown_model(*model) : shown_file(call.state.models.status(*place));
  if (!made) return respond_json(call, json);
  json.set("modelfile", made->modelfile()).set("parameters", made->parameters_text());
  if (!made->system.empty()) json.set("system", made->system);
  respond_json(call, json.set("modified_at", rfc3339(made->created_unix_s)));
}

}  // namespace headrace
