// Routes of requests to the model: quotas, the plan of a protocol, and the session.
#include <memory>
#include <optional>

#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"

namespace headrace {
namespace {

constexpr int32_t kCompletionMaxTokens = 16;  // the OpenAI API's default

Result<GenerationPlan> plan_openai_completion(const ReadyModel& model, const FieldContext& context,
                                              const Json& body) {
  HR_ASSIGN_OR_RETURN(CompletionRequest request, parse_completion_request(body, context));
  const int32_t otherwise =
      request.settings.to_context_end ? model.served.max_model_len : kCompletionMaxTokens;
  return plan_completion(model, std::move(request),
                         {.id_prefix = "cmpl-",
                          .make_format = make_completion_format,
                          .max_tokens_otherwise = otherwise});
}

Result<GenerationPlan> plan_openai_chat(const ReadyModel& model, const FieldContext& context,
                                        const Json& body) {
  HR_ASSIGN_OR_RETURN(ChatRequest request, parse_chat_request(body, context));
  return plan_chat(model, std::move(request),
                   {.id_prefix = "chatcmpl-",
                    .make_format = make_chat_format,
                    .max_tokens_otherwise = model.served.max_model_len,
                    .prompt_name = "messages"});
}

// The tokens that a request takes at most; of a request that names no max_tokens its prompts'.
std::optional<QuotaRefusal> take_tokens(KeyQuota& quota, const GenerationPlan& plan) {
  int64_t prompt = 0;
  for (const std::vector<TokenId>& ids : plan.prompts) prompt += static_cast<int64_t>(ids.size());
  const auto answers = static_cast<int64_t>(plan.prompts.size()) * plan.settings.sampling.n;
  return quota.take_tokens(*plan.lease, prompt, answers * plan.settings.max_tokens.value_or(0));
}

// Room for the prompts that shall stay in the cache, as far as there is some; x-cache-pin names it.
void reserve_pins(ServerState& state, const std::string& owner, GenerationPlan& plan) {
  state.pins->expire();
  const GenerationSettings& settings = plan.settings;
  if (settings.pin_seconds <= 0) return;
  std::string names;
  for (const std::vector<TokenId>& prompt : plan.prompts) {
    plan.pins.push_back(
        state.pins->reserve(owner, settings.cache_salt, prompt, settings.pin_seconds).value_or(""));
    if (plan.pins.back().empty()) continue;
    if (!names.empty()) names += ", ";
    names += plan.pins.back();
  }
  if (!names.empty()) plan.headers.push_back({"x-cache-pin", std::move(names)});
}

}  // namespace

// On a text thread, but for the start of the answer, which belongs on the strand. The quota is
// asked before the body is worked on: refusing many requests must cost little.
void generate(RouteCall& call, const MakePlan& make_plan) {
  // A batch takes what is left over: its bounds are others (BatchServiceOptions).
  KeyQuota* const quota = call.caller.job ? nullptr : call.state.quotas.of(call.caller.key);
  KeyQuota::Admission admission;
  if (quota) admission = quota->admit();
  if (admission.refusal) return call.exchange->respond(quota_response(*admission.refusal, *quota));
  Result<GenerationPlan> plan =
      make_plan(*call.state.model(), call.state.field_context(), call.body);
  if (!plan.ok()) {
    admission.lease.reset();  // before the client can know, who may send its next request
    return call.exchange->respond(bad_request_response(plan.status()));
  }
  if (quota) {
    plan->lease = std::move(admission.lease);
    const auto refusal = take_tokens(*quota, *plan);
    if (refusal) {
      plan->lease.reset();
      return call.exchange->respond(quota_response(*refusal, *quota));
    }
    plan->headers = quota->headers();
  }
  // Who holds the key is the tenant: a name that the client chooses is no share of its own.
  const std::string owner = call.caller.owner(call.state.keys);
  if (call.caller.key >= 0) plan->settings.tenant = owner;
  // So are its cached prefixes: else cached_tokens, or the time, tells who sent a prompt before.
  std::string& salt = plan->settings.cache_salt;
  salt = call.state.keys.cache_domain(call.caller.key) + "/" + salt;
  reserve_pins(call.state, owner, *plan);
  call.exchange->post([&state = call.state, exchange = call.exchange,
                       ready = std::make_shared<GenerationPlan>(std::move(*plan))] {
    GenerationSession::start(state, std::move(*ready), exchange);
  });
}

void handle_completions(RouteCall& call) { generate(call, plan_openai_completion); }
void handle_chat_completions(RouteCall& call) { generate(call, plan_openai_chat); }

}  // namespace headrace
