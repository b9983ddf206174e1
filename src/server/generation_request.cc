#include "server/generation_request.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/beam_fields.h"
#include "server/chat_input.h"
#include "server/field_schemas.h"
#include "server/http_message.h"
#include "server/loop_field.h"
#include "server/thought_fields.h"
#include "server/tool_choice.h"
#include "server/unsupported_fields.h"

namespace headrace {

Status read_stop_strings(std::string_view name, const Json& value, const FieldContext& context,
                         GenerationSettings& settings) {
  const RequestLimits& limits = context.limits;
  const std::string expected =
      fmt::format("a string or an array of at most {} strings, each of 1 to {} bytes",
                  limits.stops_max, limits.stop_bytes_max);
  const Json::Array items = value.is_string()  ? Json::Array{value}
                            : value.is_array() ? value.as_array()
                                               : Json::Array{Json()};
  if (items.size() > static_cast<size_t>(limits.stops_max))
    return field_error(name, expected, value);
  settings.stops.clear();
  for (const Json& item : items) {
    const bool good = item.is_string() && !item.as_string().empty() &&
                      item.as_string().size() <= limits.stop_bytes_max;
    if (!good) return field_error(name, expected, value);
    settings.stops.push_back(item.as_string());
  }
  return ok_status();
}

namespace {

using Settings = GenerationSettings;
using Context = FieldContext;

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
constexpr size_t kEchoBytesMax = 32;                 // of a client's text in a message
constexpr double kInt64Max = 9.2233720368547748e18;  // the largest double below 2^63

// Logits are divided by it: nearer to 0 they would leave the range of floats.
constexpr FieldRange kRepetitionPenalty{0.01, 100};

float to_float(const Json& value) { return static_cast<float>(value.as_double()); }
// Of a number above 0, which a float that is too small for it must not make 0.
float to_positive_float(const Json& value) {
  return std::max(to_float(value), std::numeric_limits<float>::min());
}
int32_t to_int32(const Json& value) { return static_cast<int32_t>(integer_of(value)); }

Status read_stops(const Json& value, const Context& context, Settings& settings) {
  return read_stop_strings("stop", value, context, settings);
}

Status read_stop_token_ids(const Json& value, const Context& context, Settings& settings) {
  HR_ASSIGN_OR_RETURN(settings.sampling.stop_token_ids,
                      read_token_ids("stop_token_ids", value, context,
                                     static_cast<size_t>(context.limits.stop_token_ids_max)));
  return ok_status();
}

// What is refused where the engine asks nobody which tokens may come.
Status refuse_token_rules(std::string_view name, const Context& context) {
  if (context.takes_forms) return ok_status();
  return invalid_argument(
      fmt::format("{} is not supported: this model's engine takes no structured output", name),
      std::string(name));
}

Status read_allowed_tokens(const Json& value, const Context& context, Settings& settings) {
  HR_ASSIGN_OR_RETURN(
      std::vector<TokenId> ids,
      read_token_ids("allowed_token_ids", value, context, static_cast<size_t>(context.vocab_size)));
  if (ids.empty()) return field_error("allowed_token_ids", "an array of at least one id", value);
  settings.allowed_tokens = std::move(ids);
  return refuse_token_rules("allowed_token_ids", context);
}

Status read_bad_words(const Json& value, const Context& context, Settings& settings) {
  const RequestLimits& limits = context.limits;
  const std::string expected = fmt::format("an array of at most {} words, each of 1 to {} bytes",
                                           limits.bad_words_max, limits.stop_bytes_max);
  const bool good =
      value.is_array() && value.as_array().size() <= static_cast<size_t>(limits.bad_words_max);
  if (!good) return field_error("bad_words", expected, value);
  for (const Json& word : value.as_array()) {
    const bool is_word = word.is_string() && word.as_string().size() <= limits.stop_bytes_max &&
                         word.as_string().find_first_not_of(" \t\r\n") != std::string::npos;
    if (!is_word) return field_error("bad_words", expected, word);
    settings.bad_words.push_back(word.as_string());
  }
  return settings.bad_words.empty() ? ok_status() : refuse_token_rules("bad_words", context);
}

Status read_dry_breakers(const Json& value, const Context& context, Settings& settings) {
  constexpr size_t kBreakersMax = 64;
  const RequestLimits& limits = context.limits;
  const std::string expected = fmt::format("an array of at most {} strings, each of 1 to {} bytes",
                                           kBreakersMax, limits.stop_bytes_max);
  if (!value.is_array() || value.as_array().size() > kBreakersMax) {
    return field_error("dry_sequence_breakers", expected, value);
  }
  settings.dry_breakers.clear();
  for (const Json& each : value.as_array()) {
    const bool good = each.is_string() && !each.as_string().empty() &&
                      each.as_string().size() <= limits.stop_bytes_max;
    if (!good) return field_error("dry_sequence_breakers", expected, each);
    settings.dry_breakers.push_back(each.as_string());
  }
  return ok_status();
}

// A key of logit_bias: digits only, inside the vocabulary.
std::optional<TokenId> parse_token_key(const std::string& key, int32_t vocab_size) {
  if (key.empty() || key.size() > 9) return std::nullopt;
  int32_t id = 0;
  for (char c : key) {
    if (c < '0' || c > '9') return std::nullopt;
    id = id * 10 + (c - '0');
  }
  return id < vocab_size ? std::optional(id) : std::nullopt;
}

Status read_logit_bias(const Json& value, const Context& context, Settings& settings) {
  const std::string expected =
      fmt::format("an object of at most {} token ids below {} with numbers in [-100, 100]",
                  context.limits.logit_bias_max, context.vocab_size);
  if (!value.is_object() ||
      value.as_object().size() > static_cast<size_t>(context.limits.logit_bias_max)) {
    return field_error("logit_bias", expected, value);
  }
  const std::string entry_expected =
      fmt::format("a number in [-100, 100] for a token id below {}", context.vocab_size);
  settings.sampling.logit_bias.clear();
  for (const auto& [key, bias] : value.as_object()) {
    const auto id = parse_token_key(key, context.vocab_size);
    const bool good = id && bias.is_number() && bias.as_double() >= -100 && bias.as_double() <= 100;
    if (!good) {
      const std::string entry = fmt::format("logit_bias[\"{}\"]", key.substr(0, kEchoBytesMax));
      return invalid_argument(field_error(entry, entry_expected, bias).message(), "logit_bias");
    }
    settings.sampling.logit_bias.emplace_back(*id, to_float(bias));
  }
  return ok_status();
}

// -1 asks for a seed of the server's choice, as in vLLM and llama.cpp.
Status read_seed(const Json& value, const Context&, Settings& settings) {
  settings.sampling.seed.reset();
  if (integer_of(value) != -1) {
    settings.sampling.seed = static_cast<uint64_t>(integer_of(value));
  }
  return ok_status();
}

// Below 0, as llama.cpp and LM Studio have it: as many as the context holds.
Status read_length(const Json& value, const Context&, Settings& settings) {
  settings.to_context_end = integer_of(value) < 0;
  if (!settings.to_context_end) settings.max_tokens = to_int32(value);
  return ok_status();
}

Status read_slo_class(const Json& value, const Context& context, Settings& settings) {
  std::vector<std::string_view> names;
  for (const SloClass& each : context.slo_classes) names.push_back(each.name);
  const auto found = std::find(names.begin(), names.end(), value.as_string());
  if (found == names.end()) return choice_error("slo_class", names, value);
  settings.slo_class = static_cast<int32_t>(found - names.begin());
  return ok_status();
}

// OpenAI's tiers: flex waits for what the others leave; there is one tier of live requests.
Status read_service_tier(const Json& value, const Context&, Settings& settings) {
  static constexpr std::array<std::string_view, 5> kTiers = {"auto", "default", "flex", "priority",
                                                             "scale"};
  const std::string& tier = value.as_string();
  if (std::find(kTiers.begin(), kTiers.end(), tier) == kTiers.end()) {
    return choice_error("service_tier", kTiers, value);
  }
  settings.tier = tier == "flex" ? ServiceTier::kFlex : ServiceTier::kDefault;
  return ok_status();
}

// OpenAI's: 24h keeps the prompt's keys and values, in_memory is what a cache does anyway.
Status read_retention(const Json& value, const Context& context, Settings& settings) {
  static constexpr std::array<std::string_view, 2> kRetentions = {"in_memory", "24h"};
  const std::string& retention = value.as_string();
  if (std::find(kRetentions.begin(), kRetentions.end(), retention) == kRetentions.end()) {
    return choice_error("prompt_cache_retention", kRetentions, value);
  }
  if (retention == "24h" && settings.pin_seconds == 0) {
    settings.pin_seconds = context.limits.pin_seconds_max;
  }
  return ok_status();
}

Status read_choice_count(const Json& value, const Context& context, Settings& settings) {
  const FieldRange range{1, static_cast<double>(context.limits.choices_max)};
  HR_RETURN_IF_ERROR(check_field("n", FieldType::kInteger, range, value, context));
  settings.sampling.n = to_int32(value);
  return ok_status();
}

Status read_pin(const Json& value, const Context& context, Settings& settings) {
  if (integer_of(value) > static_cast<int64_t>(context.limits.pin_seconds_max)) {
    return field_error("cache_pin",
                       fmt::format("a number of seconds up to {}", context.limits.pin_seconds_max),
                       value);
  }
  settings.pin_seconds = static_cast<double>(integer_of(value));
  return ok_status();
}

Status read_stream_options(const Json& value, const Context& context, Settings& settings) {
  if (!value.is_object()) return field_error("stream_options", "an object", value);
  static constexpr Field<Settings> kOptions[] = {
      {"include_usage",
       FieldType::kBool,
       {},
       [](const Json& v, const Context&, Settings& s) {
         return s.include_usage = v.as_bool(), ok_status();
       }},
      {"continuous_usage_stats",
       FieldType::kBool,
       {},
       [](const Json& v, const Context&, Settings& s) {
         return s.continuous_usage = v.as_bool(), ok_status();
       }},
  };
  Status status = read_fields<Settings>(kOptions, value, context, settings);
  if (!status.ok()) return invalid_argument("stream_options." + status.message(), "stream_options");
  return ok_status();
}

Status read_prompt_last(const Json& value, const Context&, Settings& settings) {
  settings.prompt_last = to_int32(value);
  if (*settings.prompt_last != 0) return ok_status();
  return field_error("truncate_prompt_tokens", "-1 or at least 1", value);
}

Result<int32_t> read_logprob_count(std::string_view name, const Json& value,
                                   const Context& context) {
  const FieldRange range{0, static_cast<double>(context.limits.logprobs_max)};
  HR_RETURN_IF_ERROR(check_field(name, FieldType::kInteger, range, value, context));
  return to_int32(value);
}

Status read_prompt_logprobs(const Json& value, const Context& context, Settings& settings) {
  HR_ASSIGN_OR_RETURN(settings.sampling.prompt_logprobs,
                      read_logprob_count("prompt_logprobs", value, context));
  settings.tell_prompt_logprobs = true;
  return ok_status();
}

// vLLM's: what follows "cmpl-" or "chatcmpl-" in the answer's id.
Status read_request_id(const Json& value, const Context&, Settings& settings) {
  constexpr size_t kIdBytesMax = 128;
  settings.request_id = value.as_string();
  if (is_safe_header_value(settings.request_id, kIdBytesMax)) return ok_status();
  return field_error("request_id", "1 to 128 printable characters without spaces", value);
}

Status accept_field(const Json&, const Context&, Settings&) { return ok_status(); }

// Plain stores.
#define HR_STORE(member, expression) \
  [](const Json& v, const Context&, Settings& s) { return s.member = (expression), ok_status(); }

constexpr Field<Settings> kGenerationFields[] = {
    {"model",
     FieldType::kString,
     {},
     [](const Json& v, const Context& c, Settings& s) {
       s.shown_model = c.shown_model;
       return s.model = v.as_string(), ok_status();
     }},
    {"temperature", FieldType::kNumber, {0, 100}, HR_STORE(sampling.temperature, to_float(v))},
    {"top_p", FieldType::kNumber, {0, 1, true}, HR_STORE(sampling.top_p, to_positive_float(v))},
    {"top_k",
     FieldType::kInteger,
     {-1, kInt32Max},
     HR_STORE(sampling.top_k, std::max(0, to_int32(v)))},
    {"min_p", FieldType::kNumber, {0, 1}, HR_STORE(sampling.min_p, to_float(v))},
    {"top_n_sigma", FieldType::kNumber, {-1, 100}, HR_STORE(sampling.top_n_sigma, to_float(v))},
    {"typical_p",
     FieldType::kNumber,
     {0, 1, true},
     HR_STORE(sampling.typical_p, to_positive_float(v))},
    {"typ_p", FieldType::kNumber, {0, 1, true}, HR_STORE(sampling.typical_p, to_positive_float(v))},
    {"xtc_probability",
     FieldType::kNumber,
     {0, 1},
     HR_STORE(sampling.xtc_probability, to_float(v))},
    {"xtc_threshold", FieldType::kNumber, {0, 1}, HR_STORE(sampling.xtc_threshold, to_float(v))},
    {"dry_multiplier",
     FieldType::kNumber,
     {0, 100},
     HR_STORE(sampling.dry.multiplier, to_float(v))},
    {"dry_base", FieldType::kNumber, {1, 100}, HR_STORE(sampling.dry.base, to_float(v))},
    {"dry_allowed_length",
     FieldType::kInteger,
     {1, kInt32Max},
     HR_STORE(sampling.dry.allowed_length, to_int32(v))},
    {"dry_penalty_last_n",
     FieldType::kInteger,
     {-1, kInt32Max},
     HR_STORE(sampling.dry.last_tokens, to_int32(v))},
    {"dry_sequence_breakers", FieldType::kAny, {}, read_dry_breakers, kDryBreakersSchema},
    {"repetition_penalty", FieldType::kNumber, kRepetitionPenalty,
     HR_STORE(sampling.repetition_penalty, to_float(v))},
    {"repeat_penalty", FieldType::kNumber, kRepetitionPenalty,
     HR_STORE(sampling.repetition_penalty, to_float(v))},
    {"repeat_last_n",
     FieldType::kInteger,
     {-1, kInt32Max},
     HR_STORE(sampling.penalty_window, to_int32(v))},
    {"presence_penalty",
     FieldType::kNumber,
     {-2, 2},
     HR_STORE(sampling.presence_penalty, to_float(v))},
    {"frequency_penalty",
     FieldType::kNumber,
     {-2, 2},
     HR_STORE(sampling.frequency_penalty, to_float(v))},
    {"logit_bias", FieldType::kAny, {}, read_logit_bias, kLogitBiasSchema},
    {"allowed_token_ids", FieldType::kAny, {}, read_allowed_tokens, kSomeTokenIdsSchema},
    {"bad_words", FieldType::kAny, {}, read_bad_words, kBadWordsSchema},
    {"seed", FieldType::kInteger, {-kInt64Max, kInt64Max}, read_seed},
    {"n", FieldType::kAny, {}, read_choice_count, kChoiceCountSchema},
    {"max_tokens", FieldType::kInteger, {-1, kInt32Max}, read_length},
    {"max_new_tokens", FieldType::kInteger, {0, kInt32Max}, HR_STORE(max_tokens, to_int32(v))},
    {"n_predict", FieldType::kInteger, {-2, kInt32Max}, read_length},
    {"min_new_tokens",
     FieldType::kInteger,
     {0, kInt32Max},
     HR_STORE(sampling.min_tokens, to_int32(v))},
    {"min_tokens", FieldType::kInteger, {0, kInt32Max}, HR_STORE(sampling.min_tokens, to_int32(v))},
    {"ignore_eos", FieldType::kBool, {}, HR_STORE(sampling.ignore_eos, v.as_bool())},
    {"stop", FieldType::kAny, {}, read_stops, kStopSchema},
    {"stop_token_ids", FieldType::kAny, {}, read_stop_token_ids, kTokenIdsSchema},
    {"repetition_detection", FieldType::kAny, {}, read_loop_field, kLoopSchema},
    {"include_stop_str_in_output", FieldType::kBool, {}, HR_STORE(include_stop, v.as_bool())},
    {"skip_special_tokens", FieldType::kBool, {}, HR_STORE(skip_special, v.as_bool())},
    {"add_special_tokens", FieldType::kBool, {}, HR_STORE(add_special, v.as_bool())},
    {"stream", FieldType::kBool, {}, HR_STORE(stream, v.as_bool())},
    {"stream_options", FieldType::kAny, {}, read_stream_options, kStreamOptionsSchema},
    {"return_tokens_as_token_ids", FieldType::kBool, {}, HR_STORE(tokens_as_ids, v.as_bool())},
    {"return_token_ids", FieldType::kBool, {}, HR_STORE(return_token_ids, v.as_bool())},
    {"priority", FieldType::kInteger, {-kInt32Max, kInt32Max}, HR_STORE(priority, to_int32(v))},
    {"slo_class", FieldType::kString, {}, read_slo_class},
    {"service_tier", FieldType::kString, {}, read_service_tier, kServiceTierSchema},
    {"user", FieldType::kString, {}, HR_STORE(tenant, v.as_string())},
    {"cache_salt", FieldType::kString, {}, HR_STORE(cache_salt, v.as_string())},
    {"cache_pin", FieldType::kInteger, {1, kInt32Max}, read_pin},
    {"prompt_cache_retention", FieldType::kString, {}, read_retention, kRetentionSchema},
    {"truncate_prompt_tokens", FieldType::kInteger, {-1, kInt32Max}, read_prompt_last},
    {"prompt_logprobs", FieldType::kAny, {}, read_prompt_logprobs, kLogprobCountSchema},
    {"request_id", FieldType::kString, {}, read_request_id},
    // They change no answer here: the cache finds prompts by what they hold, and no vocabulary puts
    // spaces between control tokens.
    {"session_id", FieldType::kString, {}, accept_field},
    {"spaces_between_special_tokens", FieldType::kBool, {}, accept_field},
};
#undef HR_STORE

Status read_prompt(const Json& value, const Context& context, CompletionRequest& request) {
  constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
  const std::string_view expected =
      "a string, an array of strings, token ids, or an array of arrays of token ids";
  if (value.is_string()) return request.texts = {value.as_string()}, ok_status();
  if (!value.is_array() || value.as_array().empty()) return field_error("prompt", expected, value);
  const Json::Array& items = value.as_array();
  if (items[0].is_number()) {
    HR_ASSIGN_OR_RETURN(auto ids, read_token_ids("prompt", value, context, kAnyLength));
    return request.ids = {std::move(ids)}, ok_status();
  }
  if (items.size() > static_cast<size_t>(context.limits.prompts_max)) {
    return invalid_argument(fmt::format("prompt must have at most {} entries, got {}",
                                        context.limits.prompts_max, items.size()),
                            "prompt");
  }
  for (const Json& item : items) {
    if (item.type_name() != items[0].type_name()) return field_error("prompt", expected, value);
    if (item.is_string()) {
      request.texts.push_back(item.as_string());
    } else if (item.is_array()) {
      HR_ASSIGN_OR_RETURN(auto ids, read_token_ids("prompt", item, context, kAnyLength));
      request.ids.push_back(std::move(ids));
    } else {
      return field_error("prompt", expected, value);
    }
  }
  return ok_status();
}

constexpr Field<CompletionRequest> kCompletionFields[] = {
    {"prompt", FieldType::kAny, {}, read_prompt, kPromptSchema},
    {"echo",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, CompletionRequest& r) {
       return r.echo = v.as_bool(), ok_status();
     }},
    {"parse_special",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, CompletionRequest& r) {
       return r.parse_special = v.as_bool(), ok_status();
     }},
    {"suffix",
     FieldType::kAny,
     {},
     [](const Json& v, const Context&, CompletionRequest& r) {
       if (!v.is_string()) return field_error("suffix", "a string", v);
       return r.suffix = v.as_string(), ok_status();
     },
     kTextSchema},
    {"logprobs",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, CompletionRequest& r) {
       HR_ASSIGN_OR_RETURN(r.settings.sampling.logprobs, read_logprob_count("logprobs", v, c));
       return ok_status();
     },
     kLogprobCountSchema},
};

Status read_messages(const Json& value, const Context& context, ChatRequest& request) {
  HR_ASSIGN_OR_RETURN(request.messages, parse_messages(value, context));
  return ok_status();
}

Status read_reasoning_effort(const Json& value, const Context&, ChatRequest& request) {
  return read_effort("reasoning_effort", value, request);
}

// top_logprobs is stored first and joined with `logprobs` by parse_chat_request.
constexpr Field<ChatRequest> kChatFields[] = {
    {"messages", FieldType::kAny, {}, read_messages, kMessagesSchema},
    {"max_completion_tokens",
     FieldType::kInteger,
     {-1, kInt32Max},
     [](const Json& v, const Context& context, ChatRequest& r) {
       if (integer_of(v) == 0) {
         return invalid_argument(
             "max_completion_tokens must be at least 1 (-1: what the context leaves), got 0",
             "max_completion_tokens");
       }
       return read_length(v, context, r.settings);
     }},
    {"logprobs",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ChatRequest& r) {
       return r.settings.sampling.logprobs = v.as_bool() ? 0 : -1, ok_status();
     }},
    {"top_logprobs",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, ChatRequest& r) {
       HR_ASSIGN_OR_RETURN(const int32_t count, read_logprob_count("top_logprobs", v, c));
       if (r.settings.sampling.logprobs < 0 && count > 0) {
         return invalid_argument("top_logprobs needs logprobs to be true", "top_logprobs");
       }
       if (r.settings.sampling.logprobs >= 0) r.settings.sampling.logprobs = count;
       return ok_status();
     },
     kLogprobCountSchema},
    {"add_generation_prompt",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ChatRequest& r) {
       return r.add_generation_prompt = v.as_bool(), ok_status();
     }},
    {"continue_final_message",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ChatRequest& r) {
       return r.continue_final_message = v.as_bool(), ok_status();
     }},
    {"reasoning_effort", FieldType::kString, {}, read_reasoning_effort, kEffortSchema},
    {"parallel_tool_calls",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ChatRequest& r) {
       return r.parallel_tool_calls = v.as_bool(), ok_status();
     }},
    {"tools", FieldType::kAny, {}, add_template_variable<ChatRequest, add_tools>, kToolsSchema},
    {"documents",
     FieldType::kAny,
     {},
     add_template_variable<ChatRequest, add_documents>,
     kDocumentsSchema},
    {"chat_template_kwargs",
     FieldType::kAny,
     {},
     add_template_variable<ChatRequest, add_template_kwargs>,
     kTemplateKwargsSchema},
};

// Other servers' names of fields: two names of one field may not say two things.
struct Alias {
  std::string_view alias, name;
};
constexpr Alias kAliases[] = {
    {"repeat_penalty", "repetition_penalty"}, {"n_predict", "max_tokens"},
    {"n_predict", "max_completion_tokens"},   {"max_new_tokens", "max_tokens"},
    {"max_new_tokens", "n_predict"},          {"max_new_tokens", "max_completion_tokens"},
    {"min_new_tokens", "min_tokens"},         {"best_of", "beam_width"},
};

Status check_aliases(const Json& body) {
  for (const auto& [alias, name] : kAliases) {
    const Json* first = body.find(alias);
    const Json* second = body.find(name);
    const bool both = first && second && !first->is_null() && !second->is_null();
    if (!both || *first == *second) continue;
    return invalid_argument(fmt::format("{} is another name of {}: send one of them", alias, name),
                            std::string(alias));
  }
  return ok_status();
}

// The name by which the body asks for no token at all; empty: it does not.
std::string_view zero_length(const Json& body, const Settings& settings) {
  if (settings.max_tokens != 0) return {};
  for (std::string_view name : {"max_tokens", "max_new_tokens", "n_predict"}) {
    if (body.find(name)) return name;
  }
  return {};
}

// echo with logprobs tells those of the prompt, too.
Status settle_echo(CompletionRequest& request) {
  if (!request.echo) return ok_status();
  const auto refuse = [](const char* field) {
    return invalid_argument(std::string(field) + " does not go with echo", field);
  };
  if (request.settings.tell_prompt_logprobs) return refuse("prompt_logprobs");
  if (request.settings.prompt_last) return refuse("truncate_prompt_tokens");
  request.settings.sampling.prompt_logprobs = request.settings.sampling.logprobs;
  return ok_status();
}

// Three servers' names for where the thoughts go.
Status read_reasoning_form(const Json& body, const Context& context, ChatRequest& request) {
  const auto is = [&](std::string_view name, Json value) {
    const Json* field = body.find(name);
    return field && *field == value;
  };
  const auto refuse_unread = [&](std::string_view name) {
    if (context.reads_reasoning) return ok_status();
    return invalid_argument(
        fmt::format("{} is not supported: how this model writes its thoughts is not known from its "
                    "chat template, and no --reasoning-parser says it",
                    name),
        std::string(name));
  };
  if (is("reasoning_format", "none") || is("separate_reasoning", false)) {
    request.reasoning = ReasoningForm::kInContent;
  }
  for (std::string_view format : {"auto", "deepseek"}) {
    if (is("reasoning_format", format)) HR_RETURN_IF_ERROR(refuse_unread("reasoning_format"));
  }
  if (is("separate_reasoning", true)) HR_RETURN_IF_ERROR(refuse_unread("separate_reasoning"));
  if (!is("include_reasoning", false)) return ok_status();
  request.reasoning = ReasoningForm::kHidden;
  return refuse_unread("include_reasoning");
}

}  // namespace

std::span<const Field<GenerationSettings>> generation_fields() { return kGenerationFields; }
std::span<const Field<CompletionRequest>> completion_fields() { return kCompletionFields; }
std::span<const Field<ChatRequest>> chat_fields() { return kChatFields; }

void ignore_empty_penalty_window(GenerationSettings& settings) {
  if (settings.sampling.penalty_window != 0) return;
  SamplingParams& sampling = settings.sampling;
  sampling.repetition_penalty = 1;
  sampling.presence_penalty = sampling.frequency_penalty = 0;
}

Status check_settings(const GenerationSettings& settings, const FieldContext& context,
                      std::string_view logprobs_name) {
  const SamplingParams& sampling = settings.sampling;
  const RequestLimits& limits = context.limits;
  if (sampling.logprobs > limits.logprobs_max) {
    return invalid_argument(fmt::format("{} must be an integer in [0, {}], got {}", logprobs_name,
                                        limits.logprobs_max, sampling.logprobs),
                            std::string(logprobs_name));
  }
  if (settings.max_tokens && sampling.min_tokens > *settings.max_tokens) {
    return invalid_argument(fmt::format("min_tokens must be at most max_tokens ({}), got {}",
                                        *settings.max_tokens, sampling.min_tokens),
                            "min_tokens");
  }
  if (settings.tell_prompt_logprobs && settings.stream) {
    return invalid_argument("prompt_logprobs is not supported with stream", "prompt_logprobs");
  }
  if (settings.include_usage && !settings.stream) {
    return invalid_argument("stream_options needs stream to be true", "stream_options");
  }
  return ok_status();
}

Result<CompletionRequest> parse_completion_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_completion_fields(body));
  HR_RETURN_IF_ERROR(check_aliases(body));
  CompletionRequest request;
  context.defaults.apply_to(request.settings.sampling);
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(kGenerationFields, body, context, request.settings));
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(form_fields(), body, context, request.settings));
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(beam_fields(), body, context, request.settings));
  HR_RETURN_IF_ERROR(read_fields<CompletionRequest>(kCompletionFields, body, context, request));
  ignore_empty_penalty_window(request.settings);
  HR_RETURN_IF_ERROR(check_settings(request.settings, context, "logprobs"));
  HR_RETURN_IF_ERROR(settle_beams(body, request.settings));
  const std::string_view zero = zero_length(body, request.settings);
  if (!zero.empty() && !request.echo) {
    return invalid_argument(fmt::format("{} may be 0 only with echo", zero), std::string(zero));
  }
  if (request.texts.empty() && request.ids.empty()) {
    return invalid_argument("prompt is missing", "prompt");
  }
  HR_RETURN_IF_ERROR(settle_echo(request));
  return request;
}

Result<ChatRequest> parse_chat_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_chat_fields(body));
  HR_RETURN_IF_ERROR(check_aliases(body));
  ChatRequest request;
  context.defaults.apply_to(request.settings.sampling);
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(kGenerationFields, body, context, request.settings));
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(form_fields(), body, context, request.settings));
  HR_RETURN_IF_ERROR(
      read_fields<GenerationSettings>(beam_fields(), body, context, request.settings));
  HR_RETURN_IF_ERROR(read_fields<ChatRequest>(kChatFields, body, context, request));
  HR_RETURN_IF_ERROR(read_fields<ChatRequest>(thought_fields(), body, context, request));
  ignore_empty_penalty_window(request.settings);
  HR_RETURN_IF_ERROR(check_settings(request.settings, context, "top_logprobs"));
  HR_RETURN_IF_ERROR(settle_beams(body, request.settings));
  HR_RETURN_IF_ERROR(check_continued(body));
  HR_ASSIGN_OR_RETURN(const ToolChoice choice, read_openai_tool_choice(body));
  HR_RETURN_IF_ERROR(choose_calls(choice, context, request));
  HR_RETURN_IF_ERROR(read_reasoning_form(body, context, request));
  const std::string_view zero = zero_length(body, request.settings);
  if (!zero.empty()) return field_error(zero, "at least 1", Json(0));
  if (!request.messages.is_array()) return invalid_argument("messages is missing", "messages");
  return request;
}

}  // namespace headrace
