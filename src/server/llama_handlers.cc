// Routes of llama.cpp's own API: prompts without a template, filling in, and what the server is.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/llama_format.h"
#include "server/llama_request.h"
#include "text/utf8.h"

namespace headrace {
namespace {

Json texts_json(const std::vector<std::string>& texts) {
  Json json = Json::array();
  for (const std::string& text : texts) json.push(text);
  return json;
}

// llama.cpp's names of what a request asks for.
Json generation_settings_json(const GenerationSettings& settings) {
  const SamplingParams& sampling = settings.sampling;
  const int32_t length = settings.max_tokens.value_or(-1);
  Json json = Json::object();
  json.set("seed", sampling.seed ? Json(static_cast<int64_t>(*sampling.seed)) : Json(-1));
  json.set("temperature", sampling.temperature).set("top_k", sampling.top_k);
  json.set("top_p", sampling.top_p).set("min_p", sampling.min_p);
  json.set("repeat_last_n", sampling.penalty_window);
  json.set("repeat_penalty", sampling.repetition_penalty);
  json.set("presence_penalty", sampling.presence_penalty);
  json.set("frequency_penalty", sampling.frequency_penalty);
  json.set("stop", texts_json(settings.stops)).set("max_tokens", length).set("n_predict", length);
  json.set("ignore_eos", sampling.ignore_eos).set("stream", settings.stream);
  return json.set("n_probs", std::max(0, sampling.logprobs));
}

// A length is a bound: what the context leaves is enough.
Result<GenerationPlan> plan_llama(const ReadyModel& model, LlamaRequest request,
                                  std::vector<std::vector<TokenId>> prompts,
                                  std::string_view prompt_name) {
  LlamaEcho echo{.settings = generation_settings_json(request.settings),
                 .return_tokens = request.return_tokens};
  const Tokenizer* tokenizer = model.served.tokenizer;
  for (const std::vector<TokenId>& ids : prompts) {
    echo.prompts.push_back(tokenizer ? replace_invalid_utf8(tokenizer->decode(ids, false)) : "");
  }
  CompletionRequest completion;
  completion.settings = std::move(request.settings);
  completion.ids = std::move(prompts);
  const auto named = std::exchange(completion.settings.max_tokens, std::nullopt);
  const int32_t otherwise = length_otherwise(model, completion.settings);
  const auto make_format = [echo = std::move(echo)](AnswerHead head) {
    return make_llama_format(echo, std::move(head));
  };
  auto plan = plan_completion(model, std::move(completion),
                              {.id_prefix = "llama-",
                               .make_format = make_format,
                               .max_tokens_otherwise = named.value_or(otherwise),
                               .prompt_name = prompt_name});
  if (named) plan = with_named_length(std::move(plan));
  return plan;
}

size_t prompt_tokens_max(const ReadyModel& model) {
  return 2 * static_cast<size_t>(model.served.max_model_len);
}

Result<GenerationPlan> plan_llama_completion(const ReadyModel& model, const FieldContext& context,
                                             const Json& body) {
  HR_ASSIGN_OR_RETURN(LlamaRequest request, parse_llama_completion(body, context));
  if (request.prompts.empty()) return invalid_argument("prompt is missing", "prompt");
  const Tokenizer* tokenizer = model.served.tokenizer;
  HR_RETURN_IF_ERROR(put_biased_texts(tokenizer, context.limits, request));
  std::vector<std::vector<TokenId>> prompts;
  for (const MixedPrompt& prompt : request.prompts) {
    const bool texts = std::any_of(prompt.begin(), prompt.end(), [](const PromptPiece& piece) {
      return std::holds_alternative<std::string>(piece);
    });
    if (texts && !tokenizer) {
      return invalid_argument("prompt must be token ids: this model has no tokenizer", "prompt");
    }
    const EncodeOptions options{.add_special = request.settings.add_special.value_or(true),
                                .parse_special = request.parse_special,
                                .tokens_max = prompt_tokens_max(model)};
    HR_ASSIGN_OR_RETURN(auto ids, encode_mixed(tokenizer, prompt, options));
    // An empty text is a beginning, also where texts do not begin with the token for it.
    if (ids.empty() && texts && tokenizer->vocab().bos >= 0) ids = {tokenizer->vocab().bos};
    prompts.push_back(std::move(ids));
  }
  return plan_llama(model, std::move(request), std::move(prompts), "prompt");
}

Result<GenerationPlan> plan_llama_infill(const ReadyModel& model, const FieldContext& context,
                                         const Json& body) {
  HR_ASSIGN_OR_RETURN(LlamaRequest request, parse_llama_infill(body, context));
  if (!model.fill_in) {
    return invalid_argument(
        "/infill is not supported by this model: its vocabulary has no tokens to fill in with "
        "(such as <|fim_prefix|>)");
  }
  HR_RETURN_IF_ERROR(put_biased_texts(model.served.tokenizer, context.limits, request));
  HR_ASSIGN_OR_RETURN(auto ids, encode_infill(*model.served.tokenizer, *model.fill_in, request,
                                              prompt_tokens_max(model)));
  std::vector<TokenId>& ends = request.settings.sampling.stop_token_ids;
  ends.insert(ends.end(), model.fill_in->ends.begin(), model.fill_in->ends.end());
  return plan_llama(model, std::move(request), {std::move(ids)}, "input_prefix");
}

// A path tells of the machine; its last part is the model's.
std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string token_spelling(const Tokenizer* tokenizer, TokenId Vocab::*token) {
  if (!tokenizer || tokenizer->vocab().*token < 0) return "";
  return tokenizer->token_bytes(tokenizer->vocab().*token);
}

// A slot is speculative where the engine proposes tokens: it does so for all or none.
Json slot_json(size_t id, const ServedModel& served) {
  Json json = Json::object();
  const ProposalOptions& proposals = served.engine->options().scheduler.proposals;
  json.set("id", id).set("n_ctx", served.max_model_len);
  json.set("speculative", proposals.method != ProposalMethod::kNone || proposals.source);
  return json.set("is_processing", false);
}

// Numbers only: whoever may ask need not be whose prompt it is.
Json busy_slot_json(size_t id, const ServedModel& served, const SessionProgress& progress) {
  const int64_t decoded = progress.generated;
  Json next = Json::object();
  next.set("has_next_token", true).set("n_decoded", decoded);
  next.set("n_remain", std::max<int64_t>(0, progress.generated_max - decoded));
  Json json = slot_json(id, served);
  json.set("is_processing", true).set("id_task", progress.id);
  json.set("n_prompt_tokens", progress.prompt_tokens);
  json.set("n_prompt_tokens_cache", progress.cached_tokens.load());
  return json.set("next_token", Json::Array{std::move(next)});
}

}  // namespace

void handle_llama_completion(RouteCall& call) { generate(call, plan_llama_completion); }
void handle_llama_infill(RouteCall& call) { generate(call, plan_llama_infill); }

void handle_llama_props(RouteCall& call) {
  const ReadyModel& model = *call.model;
  const ServedModel& served = model.served;
  GenerationSettings settings;
  llama_sampling(served.sampling).apply_to(settings.sampling);
  settings.sampling.penalty_window = kLlamaPenaltyWindow;
  Json defaults = Json::object();
  defaults.set("params", generation_settings_json(settings)).set("n_ctx", served.max_model_len);
  Json modalities = Json::object().set("vision", false).set("video", false).set("audio", false);
  Json caps = Json::object();
  caps.set("supports_tools", model.output.tools != nullptr);
  caps.set("supports_tool_calls", model.output.tools != nullptr);
  const ChatTemplate* chat_template = served.chat_template;
  Json json = Json::object();
  json.set("default_generation_settings", std::move(defaults));
  json.set("total_slots", served.engine->options().scheduler.max_num_seqs);
  json.set("model_alias", served.names.front()).set("model_path", file_name(served.facts.path));
  json.set("model_ftype", served.facts.weight_types).set("modalities", std::move(modalities));
  json.set("endpoint_slots", true).set("endpoint_props", false).set("endpoint_metrics", true);
  json.set("chat_template", chat_template ? chat_template->source() : std::string_view());
  json.set("chat_template_caps", std::move(caps));
  json.set("bos_token", token_spelling(served.tokenizer, &Vocab::bos));
  json.set("eos_token", token_spelling(served.tokenizer, &Vocab::eos));
  json.set("build_info", "headrace " HEADRACE_VERSION).set("is_sleeping", false);
  respond_json(call, json);
}

// A slot is an answer under way, whichever row of the batch it has; the others are free.
void handle_llama_slots(RouteCall& call) {
  const ServedModel& served = call.model->served;
  const auto count = static_cast<size_t>(served.engine->options().scheduler.max_num_seqs);
  Json slots = Json::array();
  for (const auto& progress : call.state.sessions.under_way(*call.model)) {
    const size_t id = slots.as_array().size();
    if (id < count) slots.push(busy_slot_json(id, served, *progress));
  }
  const bool full = slots.as_array().size() >= count;
  if (full && call.request.query == "fail_on_no_slot=1") {
    return call.exchange->respond(error_response(503, "no slot is free"));
  }
  while (slots.as_array().size() < count) {
    slots.push(slot_json(slots.as_array().size(), served));
  }
  respond_json(call, slots);
}

}  // namespace headrace
