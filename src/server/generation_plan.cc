#include "server/generation_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"
#include "sched/request_limits.h"
#include "server/handlers.h"
#include "server/random_id.h"
#include "server/stop_end.h"
#include "text/grammar/token_rules.h"
#include "text/output/dialect_table.h"
#include "text/output/thought_budget.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// By these words clients know that a shorter prompt would do: Anthropic's and those of libraries
// over them, and OpenAI's.
constexpr std::string_view kTooLong = "prompt is too long";
constexpr std::string_view kContextLength = "this model's maximum context length";

// Of a text. A refusal names its length, unless that would take long to find out; of what is to be
// truncated the end must be known.
size_t encoded_tokens_max(const ReadyModel& model, const GenerationSettings& settings) {
  const size_t contexts = settings.prompt_last ? 16 : 2;
  return contexts * static_cast<size_t>(model.served.max_model_len);
}

// truncate_prompt_tokens: of each prompt that was encoded to its end its last tokens.
Status truncate_prompts(const ReadyModel& model, GenerationPlan& plan) {
  if (!plan.settings.prompt_last) return ok_status();
  const int32_t context = model.served.max_model_len;
  if (*plan.settings.prompt_last > context) {
    return invalid_argument(
        fmt::format("truncate_prompt_tokens must be at most the maximum context length of {} "
                    "tokens, got {}",
                    context, *plan.settings.prompt_last),
        "truncate_prompt_tokens");
  }
  const int32_t answer = std::clamp(plan.settings.max_tokens.value_or(1), 0, context - 1);
  const auto most = static_cast<size_t>(
      *plan.settings.prompt_last < 0 ? context - answer : *plan.settings.prompt_last);
  for (std::vector<TokenId>& prompt : plan.prompts) {
    if (prompt.size() <= most || prompt.size() > encoded_tokens_max(model, plan.settings)) continue;
    prompt.erase(prompt.begin(), prompt.end() - static_cast<ptrdiff_t>(most));
  }
  return ok_status();
}

// Fixes sampling.max_tokens: what was asked for, or the protocol's default, within the served
// model's own bound, and refuses what cannot fit.
Status fit_context(const ReadyModel& model, const AnswerWording& wording, GenerationPlan& plan) {
  HR_RETURN_IF_ERROR(truncate_prompts(model, plan));
  const std::string_view prompt_name = wording.prompt_name;
  const int64_t context = model.served.max_model_len;
  int64_t longest = 0;
  for (const std::vector<TokenId>& prompt : plan.prompts) {
    if (prompt.empty())
      return invalid_argument(fmt::format("{} must not be empty", prompt_name),
                              std::string(prompt_name));
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  }
  if (longest > context) {
    // Of ids all are there, of a text no more was encoded than encoded_tokens_max() says.
    const auto most = static_cast<int64_t>(encoded_tokens_max(model, plan.settings));
    const bool more = longest == most + 1;
    return invalid_argument(
        fmt::format("{}: {} has {}{} tokens, and {} is {} tokens", kTooLong, prompt_name,
                    more ? "more than " : "", more ? most : longest, kContextLength, context),
        std::string(prompt_name));
  }
  const int64_t asked = plan.settings.max_tokens.value_or(1);
  if (longest + asked > context) {
    return invalid_argument(
        fmt::format("{}: {} has {} tokens and at least {} more are to be generated, and {} is {} "
                    "tokens",
                    kTooLong, prompt_name, longest, asked, kContextLength, context),
        std::string(prompt_name));
  }
  SamplingParams& sampling = plan.settings.sampling;
  sampling.max_tokens = static_cast<int32_t>(
      plan.settings.max_tokens
          ? asked
          : std::min<int64_t>(wording.max_tokens_otherwise, context - longest));
  const int32_t beams = plan.settings.beams ? plan.settings.beams->width : 0;
  if (!plan.settings.max_tokens && (sampling.n > 1 || beams > 0)) {
    sampling.max_tokens = answer_tokens_max(model.served.engine->options().scheduler, longest,
                                            sampling.n, beams, sampling.max_tokens);
  }
  const std::optional<int32_t> bound = model.served.sampling.max_new_tokens;
  if (bound) sampling.max_tokens = std::min(sampling.max_tokens, *bound);
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  return ok_status();
}

AnswerHead answer_head(const ReadyModel& model, const GenerationPlan& plan,
                       std::string_view id_prefix) {
  const GenerationSettings& settings = plan.settings;
  AnswerHead head;
  const std::string& own = settings.request_id;
  head.id = std::string(id_prefix) + (own.empty() ? random_hex_id() : own);
  head.created_unix_s = unix_seconds();
  head.model = !settings.shown_model.empty() ? settings.shown_model
               : settings.model.empty()      ? model.served.names.front()
                                             : settings.model;
  head.fingerprint = model.fingerprint;
  if (settings.tier == ServiceTier::kFlex) head.service_tier = "flex";
  head.tell_tier_in_events = settings.tier != ServiceTier::kUnsaid;
  head.return_token_ids = settings.return_token_ids;
  head.tokens_as_ids = settings.tokens_as_ids;
  head.top_logprobs = settings.sampling.logprobs;
  head.tell_prompt_logprobs = settings.tell_prompt_logprobs;
  if (settings.return_token_ids) head.prompts = plan.prompts;
  for (const std::vector<TokenId>& ids : plan.prompts) {
    head.prompt_tokens.push_back(static_cast<int64_t>(ids.size()));
  }
  head.choices_per_prompt = settings.sampling.n;
  head.tokenizer = model.served.tokenizer;
  return head;
}

// Texts become ids; with echo each prompt's text is kept.
Status encode_prompts(const ReadyModel& model, CompletionRequest& request,
                      std::string_view prompt_name, GenerationPlan& plan) {
  const Tokenizer* tokenizer = model.served.tokenizer;
  if (!request.texts.empty() && !tokenizer) {
    return invalid_argument(
        fmt::format("{} must be token ids: this model has no tokenizer", prompt_name),
        std::string(prompt_name));
  }
  const EncodeOptions options{.add_special = request.settings.add_special.value_or(true),
                              .parse_special = request.parse_special,
                              .tokens_max = encoded_tokens_max(model, request.settings)};
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

// reasoning_effort as the template reads it. Where no value of it can change the prompt it is
// refused, but for "none" to a model whose template has no thinking to switch off.
Status apply_reasoning_effort(const ChatPromptEncoder& chat, ChatRequest& request) {
  const std::string& effort = request.reasoning_effort;
  if (effort.empty()) return ok_status();
  Json& variables = request.template_variables;
  if (variables.is_null()) variables = Json::object();
  const bool none = effort == "none";
  const bool effort_read = chat.may_read("reasoning_effort");
  if (!effort_read && !none) {
    return invalid_argument(
        "reasoning_effort is not supported by this model: its chat template does not read it",
        "reasoning_effort");
  }
  // chat_template_kwargs say it in the template's own words and go before it.
  const auto set = [&](std::string_view name, Json value) {
    if (!variables.find(name)) variables.set(name, std::move(value));
  };
  if (effort_read) set("reasoning_effort", effort);
  if (none && chat.may_read("enable_thinking")) set("enable_thinking", false);
  return ok_status();
}

// The last tokens of a prompt, for what a template has written there.
std::string prompt_end(const ReadyModel& model, std::span<const TokenId> prompt) {
  constexpr size_t kLastTokens = 16;
  return model.served.tokenizer->decode(prompt.last(std::min(prompt.size(), kLastTokens)), false);
}

// Thoughts may have been opened by the template.
bool ends_in_reasoning(const ReadyModel& model, std::span<const TokenId> prompt) {
  return model.output.opens_reasoning(prompt_end(model, prompt));
}

// Whether an answer of some form may begin with a thought: not where the request switched thoughts
// off, or bounds them by 0, or the template has ended them.
bool may_open_thought(const ReadyModel& model, const ChatRequest& request,
                      std::span<const TokenId> prompt) {
  const Json off(false);
  const auto is_off = [&](std::string_view name) {
    const Json* value = request.template_variables.find(name);
    return value && *value == off;
  };
  if (request.reasoning_effort == "none" || request.thought_tokens == 0) return false;
  if (is_off("enable_thinking") || is_off("thinking")) return false;
  return !model.output.closes_reasoning(prompt_end(model, prompt));
}

using Constraint = std::shared_ptr<const TokenConstraint>;

// What an answer must be, as the engine keeps to it; nullptr: it is free.
Result<Constraint> find_form(const ReadyModel& model, const AnswerPlan& plan) {
  if (plan.is_free()) return Constraint();
  if (!model.forms) {
    return invalid_argument(
        fmt::format("{} is not supported: this model has no tokenizer", plan.words.field),
        plan.words.field);
  }
  return model.forms->find(plan);
}

// The form, the bound of the thoughts, and which tokens there may be; the first go before the last.
Result<Constraint> find_constraint(const ReadyModel& model, const AnswerPlan& plan,
                                   const GenerationSettings& settings,
                                   std::optional<int32_t> thought_tokens) {
  std::vector<Constraint> parts;
  HR_ASSIGN_OR_RETURN(Constraint form, find_form(model, plan));
  if (form && !settings.allowed_tokens.empty()) {
    return invalid_argument(
        fmt::format("allowed_token_ids does not go with {}: a form says which tokens may come",
                    plan.words.field.empty() ? "the form of calls" : plan.words.field),
        "allowed_token_ids");
  }
  if (form) parts.push_back(std::move(form));
  if (thought_tokens) {
    parts.push_back(make_thought_budget(
        *model.served.tokenizer, model.output, model.output_marks,
        {.tokens = *thought_tokens, .starts_in_reasoning = plan.starts_in_reasoning}));
  }
  if (!settings.allowed_tokens.empty()) {
    parts.push_back(allow_tokens(settings.allowed_tokens, *model.served.tokenizer));
  }
  if (!settings.bad_words.empty()) {
    auto banned = sequences_of_words(*model.served.tokenizer, settings.bad_words);
    if (!banned.ok()) {
      return invalid_argument("bad_words: " + banned.status().message(), "bad_words");
    }
    parts.push_back(ban_sequences(*std::move(banned)));
  }
  return parts.empty() ? Constraint() : join_constraints(std::move(parts));
}

// Where a search ends an answer; of what is sampled the edge cuts the text.
std::shared_ptr<const AnswerEnd> find_answer_end(const ReadyModel& model,
                                                 const GenerationSettings& settings) {
  if (!settings.beams || model.served.tokenizer == nullptr) return nullptr;
  return make_stop_end(*model.served.tokenizer, settings.stops, settings.skip_special);
}

// What no repetition goes across, as DRY looks for it.
Status find_dry_breakers(const ReadyModel& model, GenerationSettings& settings) {
  DryPenalty& dry = settings.sampling.dry;
  if (!dry.on() || settings.dry_breakers.empty()) return ok_status();
  if (!model.break_tokens) {
    return invalid_argument(
        "dry_sequence_breakers must be empty: this model has no tokenizer, and no text",
        "dry_sequence_breakers");
  }
  dry.breakers = model.break_tokens->find(settings.dry_breakers);
  return ok_status();
}

OutputOptions output_options(const ReadyModel& model, const ChatRequest& request,
                             std::span<const TokenId> prompt) {
  OutputOptions options;
  if (request.reads_calls) {
    options.tools = std::make_shared<const ToolList>(*request.template_variables.find("tools"));
  }
  options.reasoning = request.reasoning != ReasoningForm::kInContent;
  options.starts_in_reasoning = ends_in_reasoning(model, prompt);
  options.one_call = !request.parallel_tool_calls;
  options.only_marked = request.calls.need != CallForm::Need::kNone &&
                        !may_lack_mark(request.calls, request.settings.form, model.output);
  return options;
}

// A call whose form is enforced is not cut: stop strings are of words, and where there must be
// calls there are none.
void keep_stops_to_words(const ReadyModel& model, CallForm::Need need, GenerationPlan& plan) {
  if (need == CallForm::Need::kNone) return;
  plan.stop_shield = call_shield(*model.output.tools);
  if (need == CallForm::Need::kMustCall) plan.settings.stops.clear();
}

// Ids of calls come again with the same prompt and seed, and do not within a conversation.
uint64_t call_id_seed(const GenerationPlan& plan, std::string_view answer_id) {
  const std::optional<uint64_t> seed = plan.settings.sampling.seed;
  uint64_t hash = seed ? mix64(*seed) : 0;
  if (!seed) {
    for (char c : answer_id) hash = mix64(hash ^ static_cast<unsigned char>(c));
  }
  for (TokenId id : plan.prompts[0]) hash = mix64(hash ^ static_cast<uint64_t>(id));
  return hash;
}

// The prompt of a chat, at most one id longer than encoded_tokens_max().
Result<std::vector<TokenId>> encode_chat(const ReadyModel& model, ChatRequest& request,
                                         std::string_view prompt_name) {
  HR_RETURN_IF_ERROR(check_model_name(model, request.settings.model));
  if (!model.chat)
    return invalid_argument("this model has no chat template; use /v1/completions",
                            std::string(prompt_name));
  HR_RETURN_IF_ERROR(apply_reasoning_effort(*model.chat, request));
  model.put_template_defaults(request.template_variables);
  return model.chat->encode(request.messages, request.template_variables,
                            {.add_generation_prompt = request.add_generation_prompt,
                             .continue_final_message = request.continue_final_message,
                             .add_special = request.settings.add_special.value_or(false),
                             .tokens_max = encoded_tokens_max(model, request.settings)});
}

}  // namespace

Result<GenerationPlan> plan_completion(const ReadyModel& model, CompletionRequest request,
                                       const AnswerWording& wording) {
  HR_RETURN_IF_ERROR(check_model_name(model, request.settings.model));
  GenerationPlan plan;
  HR_RETURN_IF_ERROR(encode_prompts(model, request, wording.prompt_name, plan));
  plan.settings = std::move(request.settings);
  HR_RETURN_IF_ERROR(find_dry_breakers(model, plan.settings));
  HR_ASSIGN_OR_RETURN(plan.constraint, find_constraint(model, {.words = plan.settings.form},
                                                       plan.settings, std::nullopt));
  HR_RETURN_IF_ERROR(fit_context(model, wording, plan));
  plan.answer_end = find_answer_end(model, plan.settings);
  plan.format = wording.make_format(answer_head(model, plan, wording.id_prefix));
  return plan;
}

Result<GenerationPlan> plan_chat(const ReadyModel& model, ChatRequest request,
                                 const AnswerWording& wording) {
  HR_ASSIGN_OR_RETURN(auto ids, encode_chat(model, request, wording.prompt_name));
  GenerationPlan plan;
  plan.settings = std::move(request.settings);
  HR_RETURN_IF_ERROR(find_dry_breakers(model, plan.settings));
  plan.prompts.push_back(std::move(ids));
  HR_RETURN_IF_ERROR(fit_context(model, wording, plan));
  HR_ASSIGN_OR_RETURN(
      plan.constraint,
      find_constraint(model,
                      {.words = plan.settings.form,
                       .calls = request.calls,
                       .dialect = model.output,
                       .starts_in_reasoning = ends_in_reasoning(model, plan.prompts[0]),
                       .may_open_thought = may_open_thought(model, request, plan.prompts[0])},
                      plan.settings, request.thought_tokens));
  if (request.reads_calls) plan.calls_read_for = wording.request_type;
  plan.make_parser = [output = model.output,
                      options = output_options(model, request, plan.prompts[0])] {
    return make_output_parser(output, options);
  };
  keep_stops_to_words(model, request.calls.need, plan);
  plan.answer_end = find_answer_end(model, plan.settings);
  AnswerHead head = answer_head(model, plan, wording.id_prefix);
  head.call_ids = call_id_style(model.output.tools);
  head.call_id_seed = call_id_seed(plan, head.id);
  head.hide_reasoning = request.reasoning == ReasoningForm::kHidden;
  plan.format = wording.make_format(std::move(head));
  return plan;
}

int32_t length_otherwise(const ReadyModel& model, const GenerationSettings& settings) {
  const int32_t named = model.served.answer_tokens;
  return settings.to_context_end || named < 1 ? model.served.max_model_len : named;
}

Result<GenerationPlan> with_named_length(Result<GenerationPlan> plan) {
  if (plan.ok()) plan->settings.max_tokens = plan->settings.sampling.max_tokens;
  return plan;
}

Result<int64_t> count_chat_tokens(const ReadyModel& model, ChatRequest request,
                                  std::string_view prompt_name) {
  HR_ASSIGN_OR_RETURN(const auto ids, encode_chat(model, request, prompt_name));
  const size_t most = encoded_tokens_max(model, request.settings);
  if (ids.size() <= most) return static_cast<int64_t>(ids.size());
  return invalid_argument(
      fmt::format("{}: {} has more than {} tokens, and {} is {} tokens", kTooLong, prompt_name,
                  most, kContextLength, model.served.max_model_len),
      std::string(prompt_name));
}

}  // namespace headrace
