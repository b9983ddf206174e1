#include <algorithm>

#include <fmt/format.h>

#include "server/error_response.h"
#include "server/generation_request.h"
#include "server/generation_session.h"
#include "server/handlers.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int32_t kCompletionMaxTokens = 16;  // the OpenAI API's default

// Fixes sampling.max_tokens: what was asked for, or `otherwise`, and refuses what cannot fit.
Status fit_context(const ReadyModel& model, std::string_view prompt_name, int32_t otherwise,
                   GenerationPlan& plan) {
  const int64_t context = model.served.max_model_len;
  int64_t longest = 0;
  for (const std::vector<TokenId>& prompt : plan.prompts) {
    if (prompt.empty())
      return invalid_argument(fmt::format("{} must not be empty", prompt_name),
                              std::string(prompt_name));
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  }
  const int64_t asked = plan.settings.max_tokens.value_or(1);
  if (longest + asked > context) {
    return invalid_argument(
        fmt::format(
            "{} has {} tokens and at least {} more are to be generated, but the maximum context "
            "length is {} tokens",
            prompt_name, longest, asked, context),
        std::string(prompt_name));
  }
  SamplingParams& sampling = plan.settings.sampling;
  sampling.max_tokens = static_cast<int32_t>(
      plan.settings.max_tokens ? asked : std::min<int64_t>(otherwise, context - longest));
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  return ok_status();
}

AnswerHead answer_head(const ReadyModel& model, const GenerationPlan& plan,
                       std::string_view id_prefix) {
  const GenerationSettings& settings = plan.settings;
  AnswerHead head;
  head.id = std::string(id_prefix) + random_hex_id();
  head.created_unix_s = unix_seconds();
  head.model = settings.model.empty() ? model.served.names.front() : settings.model;
  head.return_token_ids = settings.return_token_ids;
  head.tokens_as_ids = settings.tokens_as_ids;
  head.top_logprobs = settings.sampling.logprobs;
  if (settings.return_token_ids) head.prompts = plan.prompts;
  head.choices_per_prompt = settings.sampling.n;
  head.tokenizer = model.served.tokenizer;
  return head;
}

// Texts become ids; with echo each prompt's text is kept.
Status encode_prompts(const ReadyModel& model, CompletionRequest& request, GenerationPlan& plan) {
  const Tokenizer* tokenizer = model.served.tokenizer;
  if (!request.texts.empty() && !tokenizer) {
    return invalid_argument("prompt must be token ids: this model has no tokenizer", "prompt");
  }
  const EncodeOptions options{.add_special = request.settings.add_special.value_or(true),
                              .parse_special = request.parse_special};
  for (std::string& text : request.texts) {
    HR_ASSIGN_OR_RETURN(auto ids, tokenizer->encode(text, options));
    plan.prompts.push_back(std::move(ids));
    if (request.echo) plan.echo.push_back(std::move(text));
  }
  for (std::vector<TokenId>& ids : request.ids) {
    if (request.echo) {
      plan.echo.push_back(tokenizer ? replace_invalid_utf8(tokenizer->decode(ids, false)) : "");
    }
    plan.prompts.push_back(std::move(ids));
  }
  return ok_status();
}

Result<GenerationPlan> plan_completion(const ReadyModel& model, const FieldContext& context,
                                       const Json& body) {
  HR_ASSIGN_OR_RETURN(CompletionRequest request, parse_completion_request(body, context));
  HR_RETURN_IF_ERROR(check_model_name(model, request.settings.model));
  GenerationPlan plan;
  HR_RETURN_IF_ERROR(encode_prompts(model, request, plan));
  plan.settings = std::move(request.settings);
  HR_RETURN_IF_ERROR(fit_context(model, "prompt", kCompletionMaxTokens, plan));
  plan.format = make_completion_format(answer_head(model, plan, "cmpl-"));
  return plan;
}

Result<GenerationPlan> plan_chat(const ReadyModel& model, const FieldContext& context,
                                 const Json& body) {
  HR_ASSIGN_OR_RETURN(ChatRequest request, parse_chat_request(body, context));
  HR_RETURN_IF_ERROR(check_model_name(model, request.settings.model));
  if (!model.chat)
    return invalid_argument("this model has no chat template; use /v1/completions", "messages");
  GenerationPlan plan;
  plan.settings = std::move(request.settings);
  HR_ASSIGN_OR_RETURN(
      auto ids, model.chat->encode(request.messages, request.template_variables,
                                   {.add_generation_prompt = request.add_generation_prompt,
                                    .add_special = plan.settings.add_special.value_or(false)}));
  plan.prompts.push_back(std::move(ids));
  HR_RETURN_IF_ERROR(fit_context(model, "messages", model.served.max_model_len, plan));
  plan.format = make_chat_format(answer_head(model, plan, "chatcmpl-"));
  return plan;
}

void start_or_refuse(RouteCall& call, Result<GenerationPlan> plan) {
  if (!plan.ok()) return call.exchange->respond(error_response(plan.status()));
  // Who holds the key is the tenant: a name that the client chooses is no share of its own.
  if (call.caller.key >= 0) plan->settings.tenant = call.caller.owner(call.state.keys);
  GenerationSession::start(call.state, std::move(*plan), call.exchange);
}

}  // namespace

void handle_completions(RouteCall& call) {
  start_or_refuse(call,
                  plan_completion(*call.state.model(), call.state.field_context(), call.body));
}

void handle_chat_completions(RouteCall& call) {
  start_or_refuse(call, plan_chat(*call.state.model(), call.state.field_context(), call.body));
}

}  // namespace headrace
