// Routes of requests to the model: quotas, the plan of a protocol, and the session.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "server/answer_journal.h"
#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/llama_request.h"
#include "server/random_id.h"

namespace headrace {
namespace {

constexpr int32_t kCompletionMaxTokens = 16;  // the OpenAI API's default

Result<GenerationPlan> plan_openai_completion(const ReadyModel& model, const FieldContext& context,
                                              const Json& body) {
  HR_ASSIGN_OR_RETURN(CompletionRequest request, parse_completion_request(body, context));
  if (!request.suffix.empty()) HR_RETURN_IF_ERROR(put_before_suffix(model, request));
  const bool says = request.settings.to_context_end || model.served.answer_tokens > 0;
  const int32_t otherwise = says ? length_otherwise(model, request.settings) : kCompletionMaxTokens;
  return plan_completion(model, std::move(request),
                         {.id_prefix = "cmpl-",
                          .make_format = make_completion_format,
                          .max_tokens_otherwise = otherwise});
}

Result<GenerationPlan> plan_openai_chat(const ReadyModel& model, const FieldContext& context,
                                        const Json& body) {
  HR_ASSIGN_OR_RETURN(ChatRequest request, parse_chat_request(body, context));
  const int32_t otherwise = length_otherwise(model, request.settings);
  return plan_chat(model, std::move(request),
                   {.id_prefix = "chatcmpl-",
                    .make_format = make_chat_format,
                    .max_tokens_otherwise = otherwise,
                    .prompt_name = "messages",
                    .request_type = "chat_completions"});
}

// The name of the model chooses it.
Result<GenerationPlan> with_adapter(const ReadyModel& model, GenerationPlan plan) {
  HR_ASSIGN_OR_RETURN(plan.adapter, model.adapter_of(plan.settings.model));
  return plan;
}

// The tokens that a request takes at most; of a request that names no max_tokens its prompts'.
std::optional<QuotaRefusal> take_tokens(KeyQuota& quota, const GenerationPlan& plan) {
  int64_t prompt = 0;
  for (const std::vector<TokenId>& ids : plan.prompts) prompt += static_cast<int64_t>(ids.size());
  const GenerationSettings& settings = plan.settings;
  const int32_t sequences = settings.beams ? settings.beams->width : settings.sampling.n;
  const auto answers = static_cast<int64_t>(plan.prompts.size()) * sequences;
  return quota.take_tokens(*plan.lease, prompt, answers * settings.max_tokens.value_or(0));
}

// Room for the prompts that shall stay in the cache, as far as there is some.
void reserve_pins(const std::string& owner, GenerationPlan& plan) {
  CachePins& pins = *plan.model->pins;
  pins.expire();
  const GenerationSettings& settings = plan.settings;
  // What is pinned is the model's own.
  if (settings.pin_seconds <= 0 || plan.adapter != nullptr) return;
  for (const std::vector<TokenId>& prompt : plan.prompts) {
    plan.pins.push_back(
        pins.reserve(owner, settings.cache_salt, prompt, settings.pin_seconds).value_or(""));
  }
}

// Takes the member that brings a journal back out of the body, which then is as the client sent it.
std::optional<Json> take_resume(Json& body) {
  if (!body.is_object()) return std::nullopt;
  Json::Object& members = body.as_object();
  const auto found = std::find_if(members.begin(), members.end(), [](const Json::Member& member) {
    return member.first == kResumeMember;
  });
  if (found == members.end()) return std::nullopt;
  Json resume = std::move(found->second);
  members.erase(found);
  return resume;
}

// Refuses what would need more memory than one answer may have, if it became as long as it may by
// its own fields, before anything of it is computed.
Status check_answer_bytes(const RequestLimits& limits, const GenerationPlan& plan) {
  const GenerationSettings& settings = plan.settings;
  if (settings.stream) return ok_status();
  const size_t choices = plan.prompts.size() * static_cast<size_t>(settings.sampling.n);
  const size_t tokens = settings.max_tokens ? static_cast<size_t>(settings.sampling.max_tokens) : 0;
  size_t bytes = choices * tokens * answer_token_bytes(settings.sampling.logprobs);
  for (size_t i = 0; i < plan.prompts.size(); ++i) bytes += told_prompt_bytes(plan, i);
  if (bytes <= limits.answer_bytes_max) return ok_status();
  return invalid_argument(
      fmt::format("the answer may have {} MiB, but one that is not streamed has at most {} MiB "
                  "(--max-answer-bytes): {}",
                  (bytes >> 20) + 1, limits.answer_bytes_max >> 20, kLessOfAnAnswer),
      "stream");
}

// Whatever decides the bits of an answer's tokens: a server that has the same makes the same ones.
std::string fingerprint_of(const ReadyModel& model, const GenerationPlan& plan) {
  const EngineOptions& options = model.served.engine->options();
  const uint64_t adapter = plan.adapter ? plan.adapter->key() : 0;
  return fmt::format("{} {} {:016x} {:016x}", HEADRACE_VERSION, options.kv_fingerprint,
                     options.arithmetic, adapter);
}

// A journal goes with the stream of a request that asks for one; an answer that was begun
// elsewhere goes on.
Status keep_journal(const ReadyModel& model, const std::optional<Json>& resume,
                    GenerationPlan& plan) {
  const GenerationSettings& settings = plan.settings;
  if (!settings.stream || plan.unattended || settings.sampling.prompt_logprobs >= 0) {
    if (!resume) return ok_status();
    return invalid_argument(
        fmt::format(
            "{} needs a stream, not in the background, without log-probabilities of the prompt",
            kResumeMember),
        std::string(kResumeMember));
  }
  const std::string fingerprint = fingerprint_of(model, plan);
  if (resume) {
    HR_ASSIGN_OR_RETURN(plan.journal,
                        read_resume(*resume, plan.prompts.size(), settings.sampling.n));
    const JournalHead& head = plan.journal->head;
    if (head.fingerprint != fingerprint && !plan.journal->inexact) {
      return unsupported(fmt::format("the answer was begun by a server of another build, model or "
                                     "arithmetic ({}, here {}): this one cannot go on with it",
                                     head.fingerprint, fingerprint),
                         std::string(kResumeMember));
    }
    plan.format->continue_as(head.identity);
    return ok_status();
  }
  AnswerJournal& journal = plan.journal.emplace();
  journal.head.identity = plan.format->identity();
  journal.head.fingerprint = fingerprint;
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    journal.head.seeds.push_back(settings.sampling.seed.value_or(random_seed()));
  }
  return ok_status();
}

}  // namespace

Status put_before_suffix(const ReadyModel& model, CompletionRequest& request) {
  const auto refuse = [](std::string_view why) {
    return invalid_argument(fmt::format("suffix {}", why), "suffix");
  };
  if (!model.fill_in) {
    return refuse(
        "is not supported by this model: its vocabulary has no tokens to fill in with (such as "
        "<|fim_prefix|>)");
  }
  if (!request.ids.empty()) return refuse("needs a prompt as text");
  if (request.echo) return refuse("does not go with echo");
  if (request.settings.prompt_last) return refuse("does not go with truncate_prompt_tokens");
  // The suffix is encoded once, and what is too long ends the request at the first prompt that is.
  const auto tokens_max = static_cast<size_t>(model.served.max_model_len);
  LlamaRequest place;
  HR_ASSIGN_OR_RETURN(
      place.behind_ids,
      model.served.tokenizer->encode(
          request.suffix, {.add_special = false, .behind_token = true, .tokens_max = tokens_max}));
  for (std::string& text : request.texts) {
    place.before = std::move(text);
    HR_ASSIGN_OR_RETURN(auto ids,
                        encode_infill(*model.served.tokenizer, *model.fill_in, place, tokens_max));
    if (ids.size() > tokens_max) {
      return refuse(fmt::format("and prompt have more than the {} tokens of the model's context",
                                tokens_max));
    }
    request.ids.push_back(std::move(ids));
  }
  request.texts.clear();
  std::vector<TokenId>& ends = request.settings.sampling.stop_token_ids;
  ends.insert(ends.end(), model.fill_in->ends.begin(), model.fill_in->ends.end());
  return ok_status();
}

// On a text thread, but for the start of the answer, which belongs on the strand. The quota is
// asked before the body is worked on: refusing many requests must cost little.
void generate(RouteCall& call, const MakePlan& make_plan, const StartAnswer& start) {
  // A batch takes what is left over: its bounds are others (BatchServiceOptions).
  KeyQuota* const quota = call.caller.job ? nullptr : call.state.quotas.of(call.caller.key);
  KeyQuota::Admission admission;
  if (quota) admission = quota->admit();
  if (admission.refusal) return call.exchange->respond(quota_response(*admission.refusal, *quota));
  const std::optional<Json> resume = take_resume(call.body);
  Result<GenerationPlan> plan =
      make_plan(*call.model, call.state.context_of(*call.model, call.shown_model), call.body);
  if (plan.ok()) plan = with_adapter(*call.model, *std::move(plan));
  if (plan.ok()) {
    const Status fits = check_answer_bytes(call.state.limits, *plan);
    if (!fits.ok()) plan = fits;
  }
  if (plan.ok() && (resume || !call.request.header(kJournalHeader).empty())) {
    const Status kept = keep_journal(*call.model, resume, *plan);
    if (!kept.ok()) plan = kept;
  }
  if (!plan.ok()) {
    admission.lease.reset();  // before the client can know, who may send its next request
    const bool elsewhere = resume && plan.status().code() == StatusCode::kUnsupported;
    HttpResponse refusal = elsewhere ? error_response(409, plan.status().message())
                                     : bad_request_response(plan.status());
    if (quota) {
      for (HttpHeader& header : quota->headers()) refusal.headers.push_back(std::move(header));
    }
    return call.exchange->respond(std::move(refusal));
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
  plan->model = call.model;
  plan->load_seconds = call.load_seconds;
  reserve_pins(owner, *plan);
  if (call.state.traces)
    plan->trace = RequestTrace{trace_context_of(call.request), call.request.id};
  if (call.state.force_usage && plan->settings.stream) plan->settings.include_usage = true;
  start(call, std::move(*plan));
}

void start_answer(RouteCall& call, GenerationPlan plan) {
  call.exchange->post([&state = call.state, exchange = call.exchange,
                       ready = std::make_shared<GenerationPlan>(std::move(plan))] {
    GenerationSession::start(state, std::move(*ready), exchange);
  });
}

// SageMaker's one route, as vLLM has it: what the body holds says which route it is for.
void handle_invocations(RouteCall& call) {
  struct Form {
    std::string_view field;
    ModelClass kind;
    void (*handle)(RouteCall&);
  };
  static constexpr Form kForms[] = {
      {"messages", ModelClass::kReady, handle_chat_completions},
      {"prompt", ModelClass::kReady, handle_completions},
      {"input", ModelClass::kEmbeds, handle_embeddings},
      {"text_1", ModelClass::kScores, handle_score},
      {"query", ModelClass::kScores, handle_rerank},
  };
  for (const Form& form : kForms) {
    if (call.body.find(form.field)) return with_model(call, form.kind, form.handle);
  }
  call.exchange->respond(error_response(
      400, "messages, prompt, input, text_1 or query is missing: it says which route is meant",
      "messages"));
}

void handle_completions(RouteCall& call) { generate(call, plan_openai_completion); }
void handle_chat_completions(RouteCall& call) { generate(call, plan_openai_chat); }

}  // namespace headrace
