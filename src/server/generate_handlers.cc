// The routes that SGLang and text-generation-inference have beside OpenAI's, and vLLM's of its
// engine. Both call one of theirs /generate: a body with `inputs` is the latter's.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/error_form_exchange.h"
#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/sglang_format.h"
#include "server/sglang_request.h"
#include "server/tgi_format.h"
#include "server/tgi_request.h"

namespace headrace {
namespace {

// Lengths are bounds: what the context leaves is enough.
int32_t take_length(GenerationSettings& settings) {
  return std::exchange(settings.max_tokens, std::nullopt).value_or(0);
}

Result<GenerationPlan> plan_sglang(const ReadyModel& model, const FieldContext& context,
                                   const Json& body) {
  HR_ASSIGN_OR_RETURN(SglangRequest request, parse_sglang_request(body, context));
  const bool texts = !request.completion.texts.empty();
  SglangEcho echo{.id = std::move(request.id), .is_list = request.is_list};
  const int32_t length = take_length(request.completion.settings);
  return with_named_length(plan_completion(
      model, std::move(request.completion),
      {.id_prefix = "",
       .make_format = [echo = std::move(echo)](
                          AnswerHead head) { return make_sglang_format(echo, std::move(head)); },
       .max_tokens_otherwise = length,
       .prompt_name = texts ? "text" : "input_ids"}));
}

Result<GenerationPlan> plan_tgi_as(const ReadyModel& model, const FieldContext& context,
                                   const Json& body, bool as_list) {
  HR_ASSIGN_OR_RETURN(TgiRequest request, parse_tgi_request(body, context));
  TgiEcho echo{.prompt = request.full_text ? request.inputs : std::string(),
               .seed = request.completion.settings.sampling.seed,
               .details = request.details,
               .as_list = as_list};
  const int32_t length = take_length(request.completion.settings);
  return with_named_length(plan_completion(
      model, std::move(request.completion),
      {.id_prefix = "",
       .make_format = [echo = std::move(echo)](
                          AnswerHead head) { return make_tgi_format(echo, std::move(head)); },
       .max_tokens_otherwise = length,
       .prompt_name = "inputs"}));
}

Result<GenerationPlan> plan_tgi(const ReadyModel& model, const FieldContext& context,
                                const Json& body) {
  return plan_tgi_as(model, context, body, false);
}
Result<GenerationPlan> plan_tgi_list(const ReadyModel& model, const FieldContext& context,
                                     const Json& body) {
  return plan_tgi_as(model, context, body, true);
}

std::string spelled(const Tokenizer& tokenizer, TokenId token) {
  return token < 0 ? std::string() : tokenizer.token_bytes(token);
}

}  // namespace

void handle_generate(RouteCall& call) {
  if (!call.body.find("inputs")) return generate(call, plan_sglang);
  call.body.set("stream", false);  // its stream has a route of its own
  call.exchange = in_error_form(ErrorForm::kTgi, std::move(call.exchange));
  generate(call, plan_tgi);
}

void handle_generate_stream(RouteCall& call) {
  call.body.set("stream", true);
  generate(call, plan_tgi);
}

void handle_tgi_root(RouteCall& call) { generate(call, plan_tgi_list); }

// Text generation inference's: what its clients look at before they ask.
void handle_tgi_info(RouteCall& call) {
  const ServedModel& served = call.model->served;
  const RequestLimits& limits = call.state.limits;
  Json json = Json::object();
  json.set("model_id", served.names.front()).set("model_sha", Json());
  json.set("model_pipeline_tag",
           call.model->generates() ? "text-generation" : "feature-extraction");
  json.set("max_input_tokens", std::max(0, served.max_model_len - 1));
  json.set("max_total_tokens", served.max_model_len);
  json.set("max_stop_sequences", limits.stops_max);
  if (call.model->generates()) {
    json.set("max_concurrent_requests", served.engine->options().scheduler.max_num_seqs);
  }
  json.set("max_best_of", 1).set("validation_workers", 1).set("router", "headrace");
  respond_json(call, json.set("version", HEADRACE_VERSION).set("sha", Json()));
}

void handle_model_info(RouteCall& call) {
  const ServedModel& served = call.model->served;
  Json json = Json::object();
  json.set("model_path", served.names.front()).set("tokenizer_path", served.names.front());
  json.set("is_generation", call.model->generates()).set("preferred_sampling_params", Json());
  respond_json(call, json.set("has_image_understanding", false));
}

void handle_server_info(RouteCall& call) {
  const ServedModel& served = call.model->served;
  const SchedulerOptions& scheduler = served.engine->options().scheduler;
  const SchedulerStats stats = served.engine->stats().scheduler;
  Json state = Json::object();
  state.set("num_running_reqs", stats.running).set("num_waiting_reqs", stats.waiting);
  Json json = Json::object();
  json.set("version", HEADRACE_VERSION).set("model_path", served.names.front());
  json.set("served_model_name", served.names.front());
  json.set("context_length", served.max_model_len);
  json.set("max_running_requests", scheduler.max_num_seqs);
  json.set("status", call.state.draining ? "draining" : "ready");
  respond_json(call, json.set("internal_states", Json::Array{std::move(state)}));
}

void handle_tokenizer_info(RouteCall& call) {
  const ServedModel& served = call.model->served;
  if (!served.tokenizer) {
    return call.exchange->respond(error_response(400, "this model has no tokenizer"));
  }
  const Vocab& vocab = served.tokenizer->vocab();
  const ChatTemplate* chat_template = served.chat_template;
  Json json = Json::object();
  json.set("tokenizer_class", vocab.model).set("vocab_size", served.tokenizer->vocab_size());
  json.set("model_max_length", served.max_model_len).set("add_bos_token", vocab.add_bos);
  json.set("add_eos_token", vocab.add_eos);
  json.set("bos_token", spelled(*served.tokenizer, vocab.bos));
  json.set("eos_token", spelled(*served.tokenizer, vocab.eos));
  json.set("unk_token", spelled(*served.tokenizer, vocab.unk));
  json.set("pad_token", spelled(*served.tokenizer, vocab.pad));
  json.set("chat_template", chat_template ? Json(chat_template->source()) : Json());
  respond_json(call, json);
}

}  // namespace headrace
