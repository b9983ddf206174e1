// Routes of Ollama's API. One model is served, and it is loaded for as long as the server runs:
// what would fetch, make or remove one is refused, in Ollama's form of errors (error_response.h).
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

// Ollama's names end in a tag; a model that is served without one is its latest.
std::string served_name(const ReadyModel& model, std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (model.serves(name) || !name.ends_with(kLatest)) return name;
  name.resize(name.size() - kLatest.size());
  return name;
}

Status check_ollama_request(const ReadyModel& model, OllamaRequest& request) {
  std::string& name = request.chat.settings.model;
  name = served_name(model, std::move(name));
  HR_RETURN_IF_ERROR(check_model_name(model, name));
  if (request.context > model.served.max_model_len) {
    return invalid_argument(
        fmt::format("options.num_ctx must be at most {}, which the server was started with "
                    "(--max-model-len), got {}",
                    model.served.max_model_len, request.context),
        "options.num_ctx");
  }
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
  const int32_t length = settings.max_tokens.value_or(model.served.max_model_len);
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
  const AnswerWording wording = ollama_wording(model, OllamaRoute::kChat, request.chat.settings);
  return plan_chat(model, std::move(request.chat), wording);
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
  const AnswerWording wording =
      ollama_wording(model, OllamaRoute::kGenerate, request.chat.settings);
  if (model.chat && !request.raw) {
    Json messages = Json::array();
    if (!request.system.empty()) messages.push(turn("system", std::move(request.system)));
    messages.push(turn("user", std::move(request.prompt)));
    request.chat.messages = std::move(messages);
    return plan_chat(model, std::move(request.chat), wording);
  }
  if (!request.system.empty()) {
    return invalid_argument(
        "system is not part of a raw prompt, nor of one to a model without a "
        "chat template: write it into the prompt",
        "system");
  }
  CompletionRequest completion;
  completion.settings = std::move(request.chat.settings);
  completion.texts = {std::move(request.prompt)};
  completion.parse_special = request.raw;
  return plan_completion(model, std::move(completion), wording);
}

// A request without a prompt asks for the model to be loaded, which it is.
void answer_or_load(RouteCall& call, OllamaRoute route, MakePlan make_plan) {
  const Json* prompt = call.body.find(route == OllamaRoute::kChat ? "messages" : "prompt");
  const bool empty =
      !prompt || prompt->is_null() || *prompt == Json("") || *prompt == Json::array();
  if (!empty) return generate(call, make_plan);
  const ReadyModel& model = *call.state.model();
  auto request = parse_ollama_request(route, call.body, call.state.field_context());
  const Status status = request.ok() ? check_ollama_request(model, *request) : request.status();
  if (!status.ok()) return call.exchange->respond(bad_request_response(status));
  const std::string& name = request->chat.settings.model;
  Json json = ollama_line(route, name.empty() ? model.served.names.front() : name, "", true);
  respond_json(call, json.set("done_reason", "load"));
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
std::string digest_of(const ServedModel& served) {
  uint64_t hash = mix64(static_cast<uint64_t>(served.facts.file_bytes));
  for (char c : served.names.front() + '\n' + served.facts.path) {
    hash = mix64(hash ^ static_cast<unsigned char>(c));
  }
  std::string digest;
  for (uint64_t i = 0; i < 4; ++i) digest += fmt::format("{:016x}", mix64(hash + i));
  return digest;
}

Json ollama_model(const ServedModel& served, const std::string& name) {
  Json json = Json::object();
  json.set("name", name).set("model", name);
  json.set("size", served.facts.file_bytes).set("digest", digest_of(served));
  return json.set("details", ollama_details(served.facts));
}

Json capabilities(const ReadyModel& model) {
  Json json = Json::array();
  if (model.generates()) json.push("completion");
  if (!model.generates() && !model.served.embedder->runner().head()) json.push("embedding");
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
  json.set(name + ".context_length", facts.context_length);
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

}  // namespace

void handle_ollama_root(RouteCall& call) {
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Ollama is running";
  call.exchange->respond(std::move(response));
}

void handle_ollama_version(RouteCall& call) {
  respond_json(call, Json::object().set("version", kOllamaVersion));
}

void handle_ollama_chat(RouteCall& call) {
  answer_or_load(call, OllamaRoute::kChat, plan_ollama_chat);
}

void handle_ollama_generate(RouteCall& call) {
  answer_or_load(call, OllamaRoute::kGenerate, plan_ollama_generate);
}

void handle_ollama_tags(RouteCall& call) {
  const ServedModel& served = call.state.model()->served;
  Json models = Json::array();
  for (const std::string& name : served.names) {
    models.push(ollama_model(served, name).set("modified_at", rfc3339(served.created_unix_s)));
  }
  respond_json(call, Json::object().set("models", std::move(models)));
}

void handle_ollama_ps(RouteCall& call) {
  const ServedModel& served = call.state.model()->served;
  Json json = ollama_model(served, served.names.front());
  json.set("size", served.facts.memory_bytes).set("size_vram", served.facts.gpu_bytes);
  json.set("expires_at", rfc3339(kForeverUnixSeconds));
  json.set("context_length", served.max_model_len);
  respond_json(call, Json::object().set("models", Json::Array{std::move(json)}));
}

void handle_ollama_show(RouteCall& call) {
  const ReadyModel& model = *call.state.model();
  const Json* name = call.body.find("model");
  if (!name || name->is_null()) name = call.body.find("name");  // as it was called before
  if (name && !name->is_string()) {
    return call.exchange->respond(error_response(field_error("model", "a string", *name)));
  }
  const std::string asked = name ? served_name(model, name->as_string()) : "";
  const Status known = check_model_name(model, asked);
  if (!known.ok()) return call.exchange->respond(error_response(known));
  const ChatTemplate* chat_template = model.served.chat_template;
  Json json = Json::object();
  json.set("modelfile", "FROM " + model.served.names.front() + "\n");
  json.set("parameters", parameters_text(model.served));
  json.set("template", chat_template ? chat_template->source() : std::string_view());
  json.set("details", ollama_details(model.served.facts)).set("model_info", model_info(model));
  json.set("capabilities", capabilities(model));
  respond_json(call, json.set("modified_at", rfc3339(model.served.created_unix_s)));
}

void handle_ollama_no_change(RouteCall& call) {
  call.exchange->respond(error_response(
      400,
      fmt::format("{} is not supported: this server answers with the model that it was started "
                  "with (headrace serve -m MODEL; /api/tags lists it), and fetches, makes, "
                  "copies and removes none",
                  call.request.path)));
}

}  // namespace headrace
