// Every field of every request table against hostile values (parameter_table_fixture.h), and what
// requests are read into.
#include "server/generation_request.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "server/chat_input.h"
#include "server/parameter_table_fixture.h"
#include "server/text_request.h"
#include "server/thought_fields.h"
#include "server/unsupported_fields.h"

namespace headrace::generation_request_test {
namespace {

const Accepted& generation_rows() {
  static const Accepted rows = {
      {"model", kTexts},
      {"temperature", kUnitInterval},
      {"top_p", {"0.5"}},
      {"top_k", {"-1", "0", "2^31-1"}},  // -1 and 0: off
      {"min_p", kUnitInterval},
      {"top_n_sigma", kUpToTwo},  // up to 0: off
      {"typical_p", {"0.5"}},
      {"typ_p", {"0.5"}},
      {"xtc_probability", kUnitInterval},
      {"xtc_threshold", kUnitInterval},
      {"dry_multiplier", kUnitInterval},
      {"dry_base", {}},
      {"dry_allowed_length", kLength},
      {"dry_penalty_last_n", {"-1", "0", "2^31-1"}},
      {"dry_sequence_breakers", {}},
      {"repetition_penalty", {"0.5"}},
      {"repeat_penalty", {"0.5"}},
      {"repeat_last_n", {"-1", "0", "2^31-1"}},  // without penalties it says nothing
      {"presence_penalty", kUpToTwo},
      {"frequency_penalty", kUpToTwo},
      {"logit_bias", {}},
      {"allowed_token_ids", {}},  // these two: where the engine keeps to them
      {"bad_words", {}},
      {"seed", {"-1", "0", "2^31-1", "2^31"}},  // any 64-bit integer is a seed
      {"n", {}},
      {"max_tokens",
       {"-1", "2^31-1"}},  // what is too long for the context is refused with both numbers
      {"max_new_tokens", kLength},
      {"n_predict", {"-1", "2^31-1"}},  // -1: as many as fit
      {"min_new_tokens", kCount},
      {"min_tokens", kCount},  // bounded by max_tokens when that is given
      {"ignore_eos", kOnlyTrue},
      {"stop", kTexts},
      {"stop_token_ids", {"array"}},
      {"repetition_detection", {"object"}},  // without sizes it is off
      {"include_stop_str_in_output", kOnlyTrue},
      {"skip_special_tokens", kOnlyTrue},
      {"add_special_tokens", kOnlyTrue},
      {"stream", kOnlyTrue},
      {"stream_options", {"object"}},  // unknown members are ignored
      {"return_tokens_as_token_ids", kOnlyTrue},
      {"return_token_ids", kOnlyTrue},
      {"priority", {"-1", "0", "2^31-1"}},
      {"cache_salt", kTexts},
      {"cache_pin", {}},
      {"prompt_cache_retention", {}},  // one of two words
      {"slo_class", {}},               // one of the server's names
      {"service_tier", {}},
      {"user", kTexts},
      {"truncate_prompt_tokens", {"-1", "2^31-1"}},  // what is over the context is refused later
      {"prompt_logprobs", {"0"}},
      {"request_id", kTexts},
      {"session_id", kTexts},
      {"spaces_between_special_tokens", kOnlyTrue},
  };
  return rows;
}

const Accepted kCompletionRows = {
    {"prompt", {"text NaN", "text Infinity", "text 1", "long text", "array"}},
    {"suffix", kAnyText},
    {"echo", kOnlyTrue},
    {"parse_special", kOnlyTrue},
    {"logprobs", {"0"}},
};
const Accepted kChatRows = {
    {"messages", {}},
    {"max_completion_tokens", {"-1", "2^31-1"}},
    {"logprobs", kOnlyTrue},
    {"top_logprobs", {"0"}},
    {"add_generation_prompt", kOnlyTrue},
    {"continue_final_message", kOnlyTrue},
    {"tools", {}},
    {"documents", {}},
    {"chat_template_kwargs", {"object"}},
    {"reasoning_effort", {}},  // one of seven words
    {"parallel_tool_calls", kOnlyTrue},
};
const Accepted kThoughtRows = {
    {"thinking_token_budget", {"-1"}},  // of tokens: where thoughts can be bounded
    {"thinking_budget_tokens", {"-1"}},
    {"thinking_budget", {"-1"}},
    {"reasoning_budget", {"-1"}},
    {"reasoning", {"object"}},
    {"thinking", {}},
};
const Accepted kTokenizeRows = {
    {"model", kTexts},
    {"prompt", kAnyText},
    {"content", kAnyText},
    {"messages", {}},
    {"add_special_tokens", kOnlyTrue},
    {"add_special", kOnlyTrue},
    {"parse_special", kOnlyTrue},
    {"add_generation_prompt", kOnlyTrue},
    {"continue_final_message", kOnlyTrue},
    {"tools", {}},
    {"documents", {}},
    {"chat_template_kwargs", {"object"}},
    {"return_token_strs", kOnlyTrue},
    {"with_pieces", kOnlyTrue},
};
const Accepted kDetokenizeRows = {{"model", kTexts}, {"tokens", {"array"}}};

Json completion_base() {
  Json body = Json::object();
  body.set("prompt", "a");
  return body;
}

Json chat_base() {
  Json message = Json::object();
  message.set("role", "user").set("content", "hi");
  Json body = Json::object();
  body.set("messages", Json(Json::Array{message}));
  return body;
}

Status parse_completion(const Json& body) {
  return parse_completion_request(body, kContext).status();
}
Status parse_chat(const Json& body) { return parse_chat_request(body, kContext).status(); }

TEST(ParameterTable, GenerationFieldsInBothRequests) {
  check_table<GenerationSettings>(generation_fields(), generation_rows(), completion_base(),
                                  parse_completion);
  check_table<GenerationSettings>(generation_fields(), generation_rows(), chat_base(), parse_chat);
}

TEST(ParameterTable, CompletionFields) {
  check_table<CompletionRequest>(completion_fields(), kCompletionRows, completion_base(),
                                 parse_completion, {"prompt"});
  check_field_rows("prompt", {"text NaN", "text Infinity", "text 1", "long text", "array"},
                   Json::object(), [](const Json& body) {
                     const Json* prompt = body.find("prompt");
                     return prompt->is_null() ? ok_status() : parse_completion(body);
                   });
  EXPECT_EQ(parse_completion(Json::object()).field(), "prompt");
}

TEST(ParameterTable, ChatFields) {
  check_table<ChatRequest>(chat_fields(), kChatRows, chat_base(), parse_chat, {"messages"});
  check_table<ChatRequest>(thought_fields(), kThoughtRows, chat_base(), parse_chat);
  EXPECT_EQ(parse_chat(Json::object()).field(), "messages");
}

TEST(ParameterTable, TokenizeAndDetokenizeFields) {
  Json base = Json::object();
  base.set("prompt", "a");
  const auto parse_tokenize = [](const Json& body) {
    Json only = body;  // one text form at a time
    const bool other = body.find("content") || body.find("messages");
    if (other) only.set("prompt", Json());
    const bool null_form = (body.find("content") && body.find("content")->is_null()) ||
                           (body.find("messages") && body.find("messages")->is_null()) ||
                           body.find("prompt")->is_null();
    return null_form ? ok_status() : parse_tokenize_request(only, kContext).status();
  };
  check_table<TokenizeRequest>(tokenize_fields(), kTokenizeRows, base, parse_tokenize);
  Json tokens = Json::object();
  tokens.set("tokens", Json(Json::Array{Json(1)}));
  check_table<DetokenizeRequest>(
      detokenize_fields(), kDetokenizeRows, tokens, [](const Json& body) {
        return body.find("tokens")->is_null() ? ok_status()
                                              : parse_detokenize_request(body, kContext).status();
      });
}

TEST(ParameterTable, RefusedFieldsNameThemselves) {
  for (const auto* list : {"generation", "chat"}) {
    const bool chat = std::string_view(list) == "chat";
    for (const RefusedField& field : chat ? refused_chat_fields() : refused_generation_fields()) {
      Json body = chat_base();
      const bool is_object = field.name == "metadata";  // what it may be
      body.set(field.name,
               is_object ? Json(5) : Json::Object{{"type", Json("json_object")}, {"a", Json(1)}});
      const Status status = parse_chat(body);
      EXPECT_FALSE(status.ok()) << field.name;
      EXPECT_EQ(status.field(), field.name);
    }
  }
  for (const RefusedField& field : refused_completion_fields()) {
    Json body = completion_base();
    body.set(field.name, "x");
    EXPECT_EQ(parse_completion(body).field(), field.name);
  }
}

// By name and value, as clients of the other servers send them.
TEST(ParameterTable, WhatWouldChangeAnAnswerIsNeverIgnored) {
  const std::pair<const char*, const char*> cases[] = {
      {"response_format", R"({"type":"json_object"})"},
      {"response_format", R"({"type":"json_schema","json_schema":{"schema":{}}})"},
      {"structured_outputs", R"({"regex":"a+"})"},
      {"guided_json", R"({"type":"object"})"},
      {"guided_regex", R"("a+")"},
      {"guided_choice", R"(["a"])"},
      {"guided_grammar", R"("root ::= 'a'")"},
      {"grammar", R"("root ::= 'a'")"},
      {"json_schema", "{}"},
      {"verbosity", R"("low")"},
      {"bad_words", R"(["x"])"},
      {"allowed_token_ids", "[1]"},
      {"thinking_token_budget", "8"},
      {"stream_interval", "4"},
      {"include_reasoning", "false"},
      {"enable_thinking", "false"},
      {"mirostat", "2"},
      {"tfs_z", "0.9"},
      {"dynatemp_range", "0.5"},
      {"min_keep", "2"},
      {"samplers", R"(["top_k"])"},
      {"samplers", R"("edkypmxt")"},
      {"n_probs", "3"},
      {"t_max_predict_ms", "100"},
      {"options", R"({"num_predict":5})"},
      {"format", R"("json")"},
      {"images", R"(["aGk="])"},
      {"lora", R"([{"id":0,"scale":1}])"},
  };
  for (const auto& [name, value] : cases) {
    Json body = chat_base();
    body.set(name, *parse_json(value));
    const Status status = parse_chat(body);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.field(), name) << status.message();
    EXPECT_NE(status.message().find(" is not supported: "), std::string::npos) << status.message();
  }
}

TEST(ParameterTable, ASearchHasItsFieldsAndNoSuggestedPenalty) {
  FieldContext context = kContext;
  context.defaults.repetition_penalty = 1.2f;
  const auto parse = [&](const std::string& fields) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\"," + fields + "}"), context);
  };
  const auto plain = parse(R"("use_beam_search":true,"n":4)");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->settings.beams->width, 4);
  EXPECT_EQ(plain->settings.beams->early_stopping, EarlyStopping::kNo);
  EXPECT_EQ(plain->settings.sampling.repetition_penalty, 1.0f);
  const auto all = parse(
      R"("use_beam_search":true,"n":2,"best_of":6,"length_penalty":0.5,"early_stopping":true)");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->settings.beams->width, 6);
  EXPECT_EQ(all->settings.beams->length_penalty, 0.5f);
  EXPECT_EQ(all->settings.beams->early_stopping, EarlyStopping::kYes);
  EXPECT_EQ(all->settings.sampling.n, 2);
  // Nothing of it asks for a search.
  const auto none = parse(R"("use_beam_search":false,"best_of":1,"early_stopping":false)");
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_FALSE(none->settings.beams.has_value());
}

TEST(ParameterTable, AForcedCallNeedsTools) {
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    Json body = chat_base();
    body.set("tool_choice", *parse_json(choice));
    const Status status = parse_chat(body);
    EXPECT_EQ(status.field(), "tool_choice");
    EXPECT_EQ(status.message(), "tool_choice needs tools");
  }
}

TEST(ParameterTable, HarmlessValuesOfRefusedFieldsPass) {
  Json body = chat_base();
  body.set("tools", Json::array()).set("tool_choice", "none").set("best_of", 1);
  body.set("response_format", Json::Object{{"type", Json("text")}});
  body.set("use_beam_search", false).set("length_penalty", 1.0).set("parallel_tool_calls", true);
  body.set("user", "someone").set("store", false).set("metadata", Json::object());
  // What clients of llama.cpp send with every request.
  body.set("dry_multiplier", 0).set("dry_base", 1.75).set("dry_allowed_length", 2);
  body.set("dry_penalty_last_n", -1).set("dry_sequence_breakers", Json(Json::Array{Json("x")}));
  body.set("xtc_probability", 0.0).set("xtc_threshold", 0.1).set("mirostat", 0);
  body.set("mirostat_tau", 5).set("mirostat_eta", 0.1).set("typical_p", 1).set("typ_p", 1.0);
  body.set("top_n_sigma", -1).set("dynatemp_range", 0).set("dynatemp_exponent", 1);
  body.set("min_keep", 0).set("n_probs", 0).set("samplers", Json::array()).set("n_keep", 0);
  body.set("repeat_last_n", 64).set("repeat_penalty", 1.0).set("grammar", "");
  body.set("t_max_predict_ms", -1).set("cache_prompt", true).set("verbosity", "medium");
  body.set("include_reasoning", true).set("reasoning_format", "none").set("lora", Json::array());
  EXPECT_TRUE(parse_chat(body).ok()) << parse_chat(body).message();
}

TEST(ParameterTable, SamplersOfLlamaCpp) {
  Json body = chat_base();
  body.set("dry_multiplier", 0.8).set("dry_base", 2).set("dry_allowed_length", 3);
  body.set("dry_penalty_last_n", 64).set("dry_sequence_breakers", *parse_json(R"(["\n", "x"])"));
  body.set("xtc_probability", 0.5).set("xtc_threshold", 0.2).set("typical_p", 0.9);
  body.set("top_n_sigma", 1);
  const GenerationSettings settings = parse_chat_request(body, kContext)->settings;
  const DryPenalty& dry = settings.sampling.dry;
  EXPECT_FLOAT_EQ(dry.multiplier, 0.8f);
  EXPECT_FLOAT_EQ(dry.base, 2.0f);
  EXPECT_EQ(dry.allowed_length, 3);
  EXPECT_EQ(dry.last_tokens, 64);
  EXPECT_EQ(settings.dry_breakers, (std::vector<std::string>{"\n", "x"}));
  EXPECT_FLOAT_EQ(settings.sampling.xtc_probability, 0.5f);
  EXPECT_FLOAT_EQ(settings.sampling.xtc_threshold, 0.2f);
  EXPECT_FLOAT_EQ(settings.sampling.typical_p, 0.9f);
  EXPECT_FLOAT_EQ(settings.sampling.top_n_sigma, 1.0f);
}

TEST(GenerationRequest, NumbersTooSmallForAFloat) {
  const auto parse = [](std::string_view members) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\"," + std::string(members) + "}"),
                                    kContext);
  };
  EXPECT_GT(parse(R"("top_p":1e-60)")->settings.sampling.top_p, 0.0f);
  EXPECT_EQ(parse(R"("repetition_penalty":0.01)")->settings.sampling.repetition_penalty, 0.01f);
  for (std::string_view members :
       {R"("repetition_penalty":1e-60)", R"("repetition_penalty":0.009)"}) {
    EXPECT_NE(parse(members).status().message().find("[0.01, 100]"), std::string::npos);
  }
}

TEST(GenerationRequest, OtherServersNamesOfFields) {
  const auto parse = [](std::string_view members) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\"," + std::string(members) + "}"),
                                    kContext);
  };
  EXPECT_EQ(parse(R"("repeat_penalty":1.3)")->settings.sampling.repetition_penalty, 1.3f);
  EXPECT_EQ(parse(R"("n_predict":50)")->settings.max_tokens, 50);
  EXPECT_EQ(parse(R"("max_new_tokens":50,"min_new_tokens":7)")->settings.sampling.min_tokens, 7);
  EXPECT_EQ(parse(R"("n_predict":50,"max_tokens":50)")->settings.max_tokens, 50);
  const auto unbounded = parse(R"("n_predict":-1)");
  EXPECT_TRUE(unbounded->settings.to_context_end);
  EXPECT_EQ(unbounded->settings.max_tokens, std::nullopt);
  const Status two = parse(R"("n_predict":50,"max_tokens":60)").status();
  EXPECT_EQ(two.field(), "n_predict");
  EXPECT_NE(two.message().find("another name of max_tokens"), std::string::npos) << two.message();
  EXPECT_EQ(parse(R"("repeat_penalty":1.1,"repetition_penalty":1.2)").status().field(),
            "repeat_penalty");
}

TEST(GenerationRequest, PenaltiesMayLookAtTheLastTokens) {
  const auto sampling = [](std::string_view members) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\"," + std::string(members) + "}"),
                                    kContext)
        ->settings.sampling;
  };
  EXPECT_EQ(sampling(R"("repeat_penalty":1.1)").penalty_window, -1);
  EXPECT_EQ(sampling(R"("repeat_penalty":1.1,"repeat_last_n":64)").penalty_window, 64);
  EXPECT_EQ(sampling(R"("presence_penalty":1,"repeat_last_n":-1)").penalty_window, -1);
  const SamplingParams off = sampling(
      R"("repeat_penalty":1.1,"presence_penalty":1,"frequency_penalty":1,"repeat_last_n":0)");
  EXPECT_FALSE(penalises_tokens(off));
}

TEST(GenerationRequest, SamplersInTheirOrderPass) {
  const auto parse = [](const std::string& samplers) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\",\"samplers\":" + samplers + "}"),
                                    kContext);
  };
  for (
      const char* order :
      {R"("edskypmxt")", R"("edstmkypx")", R"([])",
       R"(["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc","temperature"])",
       R"(["penalties","dry","top_n_sigma","temperature","min_p","top_k","typical_p","top_p","xtc"])"}) {
    EXPECT_TRUE(parse(order).ok()) << order;
  }
  for (const char* order : {R"(["top_k","temperature"])", R"("edkypmxt")", R"("edskypmtx")", "1",
                            R"(["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p",
                               "xtc","temperature","infill"])"}) {
    EXPECT_EQ(parse(order).status().field(), "samplers") << order;
  }
}

TEST(GenerationRequest, SeedMinusOneIsAnySeed) {
  Json body = completion_base();
  body.set("seed", -1);
  EXPECT_EQ(parse_completion_request(body, kContext)->settings.sampling.seed, std::nullopt);
  body.set("seed", -2);
  EXPECT_EQ(parse_completion_request(body, kContext)->settings.sampling.seed,
            static_cast<uint64_t>(-2));
}

TEST(GenerationRequest, HotTemperaturesAreFine) {
  Json body = chat_base();
  body.set("temperature", 5);
  EXPECT_EQ(parse_chat_request(body, kContext)->settings.sampling.temperature, 5.0f);
}

// Scores need no token; an answer of none is a mistake.
TEST(GenerationRequest, NoTokensAtAllOnlyWithEcho) {
  for (const char* name : {"max_tokens", "max_new_tokens", "n_predict"}) {
    Json body = completion_base();
    body.set(name, 0);
    EXPECT_EQ(parse_completion(body).field(), name);
    body.set("echo", true);
    EXPECT_TRUE(parse_completion(body).ok()) << name;
    Json chat = chat_base();
    chat.set(name, 0);
    EXPECT_EQ(parse_chat(chat).field(), name);
  }
  Json chat = chat_base();
  chat.set("max_completion_tokens", 0);
  EXPECT_EQ(parse_chat(chat).field(), "max_completion_tokens");
}

TEST(ChatInput, UnknownRolesAreNamed) {
  const auto parse = [](std::string_view role) {
    return parse_messages(*parse_json(R"([{"role":"user","content":"a"},{"role":")" +
                                      std::string(role) + R"(","content":"a"}])"),
                          kContext);
  };
  for (std::string_view role :
       {"system", "developer", "user", "assistant", "tool", "function", "ipython"}) {
    EXPECT_TRUE(parse(role).ok()) << role;
  }
  const Status unknown = parse("wizard").status();
  EXPECT_EQ(unknown.field(), "messages");
  EXPECT_TRUE(unknown.message().starts_with("messages[1].role must be one of system, developer"))
      << unknown.message();
  EXPECT_TRUE(unknown.message().ends_with("got \"wizard\"")) << unknown.message();
  EXPECT_FALSE(parse("").ok());
  EXPECT_FALSE(parse("User").ok());
}

TEST(GenerationRequest, ClassesAndTiersByName) {
  const std::vector<SloClass> classes = {{"default", 1, 0.1}, {"chat", 0.5, 0.03}};
  const FieldContext context{kLimits, 300, classes};
  Json body = completion_base();
  body.set("slo_class", "chat").set("service_tier", "flex").set("user", "someone");
  const auto request = parse_completion_request(body, context);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->settings.slo_class, 1);
  EXPECT_EQ(request->settings.tier, ServiceTier::kFlex);
  EXPECT_EQ(request->settings.tenant, "someone");
  body.set("service_tier", "default");
  EXPECT_EQ(parse_completion_request(body, context)->settings.tier, ServiceTier::kDefault);
  body.set("slo_class", "gold");
  const Status unknown = parse_completion_request(body, context).status();
  EXPECT_EQ(unknown.field(), "slo_class");
  EXPECT_NE(unknown.message().find("default, chat"), std::string::npos) << unknown.message();
  body.set("slo_class", "chat").set("service_tier", "platinum");
  EXPECT_NE(parse_completion_request(body, context).status().message().find("flex"),
            std::string::npos);
}

TEST(GenerationRequest, RulesBetweenFields) {
  Json body = completion_base();
  body.set("max_tokens", 3).set("min_tokens", 4);
  EXPECT_EQ(parse_completion(body).field(), "min_tokens");
  body = completion_base();
  body.set("n", 128);
  EXPECT_TRUE(parse_completion(body).ok()) << parse_completion(body).message();
  body.set("n", 129);
  EXPECT_EQ(parse_completion(body).message(), "n must be an integer in [1, 128], got 129");
  body = completion_base();
  body.set("logprobs", 21);
  EXPECT_EQ(parse_completion(body).message(), "logprobs must be an integer in [0, 20], got 21");
  body = chat_base();
  body.set("top_logprobs", 3);
  EXPECT_EQ(parse_chat(body).field(), "top_logprobs");
  body.set("logprobs", true);
  const auto chat = parse_chat_request(body, kContext);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->settings.sampling.logprobs, 3);
  body = completion_base();
  body.set("stream_options", Json::Object{{"include_usage", Json(true)}});
  EXPECT_EQ(parse_completion(body).field(), "stream_options");
}

TEST(GenerationRequest, PromptForms) {
  const auto parse = [](std::string_view prompt) {
    return parse_completion_request(*parse_json("{\"prompt\":" + std::string(prompt) + "}"),
                                    kContext);
  };
  EXPECT_EQ(parse("\"a\"")->texts, std::vector<std::string>{"a"});
  EXPECT_EQ(parse("[\"a\",\"b\"]")->texts.size(), 2u);
  EXPECT_EQ(parse("[1,2,3]")->ids, (std::vector<std::vector<TokenId>>{{1, 2, 3}}));
  EXPECT_EQ(parse("[[1],[2,3]]")->ids, (std::vector<std::vector<TokenId>>{{1}, {2, 3}}));
  for (std::string_view bad : {"[]", "{}", "1", "[1,\"a\"]", "[\"a\",1]", "[[1],\"a\"]", "[300]",
                               "[-1]", "[1.5]", "[[300]]", "[null]", "[true]"}) {
    EXPECT_EQ(parse(bad).status().field(), "prompt") << bad;
  }
}

TEST(GenerationRequest, StopAndLogitBiasLimits) {
  const auto parse = [](std::string_view member) {
    return parse_completion_request(*parse_json("{\"prompt\":\"a\"," + std::string(member) + "}"),
                                    kContext);
  };
  EXPECT_EQ(parse("\"stop\":[\"a\",\"b\"]")->settings.stops.size(), 2u);
  EXPECT_TRUE(parse("\"stop\":[]").ok());
  EXPECT_EQ(parse("\"stop\":\"\"").status().field(), "stop");
  EXPECT_EQ(parse("\"stop\":[\"a\",1]").status().field(), "stop");
  EXPECT_EQ(parse("\"stop\":\"" + std::string(257, 'a') + "\"").status().field(), "stop");
  std::string many = "\"stop\":[\"a\"";
  for (int i = 0; i < 16; ++i) many += ",\"a\"";
  EXPECT_EQ(parse(many + "]").status().field(), "stop");
  EXPECT_EQ(parse("\"logit_bias\":{\"5\":-100,\"299\":1.5}")->settings.sampling.logit_bias.size(),
            2u);
  for (std::string_view bad : {"{\"300\":1}", "{\"-1\":1}", "{\"a\":1}", "{\"\":1}", "{\"1\":101}",
                               "{\"1\":\"x\"}", "{\"99999999999\":1}"}) {
    EXPECT_EQ(parse("\"logit_bias\":" + std::string(bad)).status().field(), "logit_bias") << bad;
  }
}

TEST(GenerationRequest, ContentPartsAreJoined) {
  const auto parse = [](std::string_view content) {
    return parse_chat_request(*parse_json("{\"messages\":[{\"role\":\"user\",\"content\":" +
                                          std::string(content) + "}]}"),
                              kContext);
  };
  EXPECT_EQ(parse("[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]")
                ->messages.as_array()[0]
                .find("content")
                ->as_string(),
            "a\nb");
  EXPECT_TRUE(parse("null").ok());
  for (std::string_view bad :
       {"1", "{}", "[1]", "[{\"type\":\"image_url\"}]", "[{\"type\":\"text\"}]"}) {
    EXPECT_EQ(parse(bad).status().field(), "messages") << bad;
  }
  EXPECT_NE(parse("[{\"type\":\"text\"}]").status().message().find("text is no string"),
            std::string::npos);
}

Result<ChatRequest> chat_with(std::string_view members) {
  return parse_chat_request(*parse_json("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," +
                                        std::string(members) + "}"),
                            kContext);
}

constexpr std::string_view kTool = R"({"type":"function","function":{"name":"f"}})";

// A forced call of such a tool would be refused when it comes back in the next turn.
TEST(ChatInput, ArgumentsAreObjects) {
  const auto with_parameters = [](std::string_view parameters) {
    return chat_with(fmt::format(R"("tool_choice":"none","tools":[{{"type":"function",)"
                                 R"("function":{{"name":"f","parameters":{}}}}}])",
                                 parameters))
        .status();
  };
  for (const char* good : {R"({"type":"object"})", "{}", R"({"type":["object","null"]})", "null"}) {
    EXPECT_TRUE(with_parameters(good).ok()) << good << with_parameters(good).message();
  }
  EXPECT_EQ(with_parameters(R"({"type":"string"})").field(), "tools");
  EXPECT_NE(with_parameters(R"({"type":"string"})").message().find("tools[0].function.parameters"),
            std::string::npos);
}

TEST(ChatInput, ToolsAndDocumentsBecomeTemplateVariables) {
  const std::string only_tools = "\"tools\":[" + std::string(kTool) + "]";
  const std::string tools = only_tools + ",\"tool_choice\":\"none\"";
  const auto request = chat_with(tools + R"(,"documents":[{"title":"t"}],)"
                                         R"("chat_template_kwargs":{"enable_thinking":false})");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(write_json(request->template_variables),
            R"({"tools":[{"type":"function","function":{"name":"f"}}],)"
            R"("documents":[{"title":"t"}],"enable_thinking":false})");
  EXPECT_EQ(chat_with("\"tools\":[]")->template_variables.find("tools"), nullptr);
  EXPECT_TRUE(chat_with("\"tools\":[],\"tool_choice\":\"auto\"").ok());
  EXPECT_EQ(chat_with(only_tools + ",\"tool_choice\":1").status().message(),
            "tool_choice must be one of auto, none, required, a function, got 1");
  for (std::string_view choice :
       {"\"required\"", R"({"type":"function","function":{"name":"f"}})"}) {
    const Status status =
        chat_with(only_tools + ",\"tool_choice\":" + std::string(choice)).status();
    EXPECT_EQ(status.field(), "tool_choice") << choice;
    EXPECT_NE(status.message().find("cannot be forced"), std::string::npos) << status.message();
  }
  for (std::string_view bad : {"{}", "[1]", "[{}]", R"([{"type":"function"}])",
                               R"([{"type":"retrieval","function":{"name":"f"}}])",
                               R"([{"type":"function","function":{"name":1}}])"}) {
    EXPECT_EQ(chat_with("\"tools\":" + std::string(bad)).status().field(), "tools") << bad;
  }
  EXPECT_EQ(chat_with(R"("chat_template_kwargs":{"tools":[]})").status().field(),
            "chat_template_kwargs");
}

// An agent would read the text of a call as the answer, and ask again.
TEST(ChatInput, ToolsThatTheModelMayCallAreRefused) {
  const std::string tools = "\"tools\":[" + std::string(kTool) + "]";
  for (std::string_view silent : {"", ",\"tool_choice\":null"}) {
    const Status status = chat_with(tools + std::string(silent)).status();
    EXPECT_EQ(status.field(), "tools");
    EXPECT_TRUE(status.message().starts_with("tools need tool_choice \"none\""))
        << status.message();
  }
  const Status chosen = chat_with(tools + ",\"tool_choice\":\"auto\"").status();
  EXPECT_EQ(chosen.field(), "tool_choice");
  EXPECT_NE(chosen.message().find("calls are not parsed"), std::string::npos) << chosen.message();
}

TEST(ChatInput, ArgumentsOfToolCallsBecomeObjects) {
  const auto parse = [](std::string_view call) {
    return parse_messages(
        *parse_json(R"([{"role":"assistant","tool_calls":[)" + std::string(call) + "]}]"),
        kContext);
  };
  const auto messages = parse(R"({"id":"1","function":{"name":"f","arguments":"{\"a\": [1]}"}})");
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  EXPECT_EQ(write_json(*messages),
            R"([{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f",)"
            R"("arguments":{"a":[1]}}}],"content":null}])");
  EXPECT_TRUE(parse(R"({"function":{"name":"f","arguments":{"a":1}}})").ok());
  EXPECT_TRUE(parse(R"({"function":{"name":"f","arguments":""}})").ok());
  EXPECT_TRUE(parse(R"({"function":{"name":"f"}})").ok());
  for (std::string_view bad :
       {R"({"function":{"name":"f","arguments":"{"}})",
        R"({"function":{"name":"f","arguments":"1"}})", R"({"function":{}})", "{}", "1"}) {
    EXPECT_EQ(parse(bad).status().field(), "messages") << bad;
  }
}

// What a person reads who made a mistake.
TEST(GenerationRequest, ErrorsSayWhatWasExpectedAndWhatCame) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("service_tier":"gold")",
       "service_tier must be one of auto, default, flex, priority, scale, got \"gold\""},
      {R"("n":0)", "n must be an integer in [1, 128], got 0"},
      {R"("n":129)", "n must be an integer in [1, 128], got 129"},
      {R"("seed":1.5)", "seed must be an integer of 64 bits, got 1.5"},
      {R"("stop":"")", "of 1 to 256 bytes, got an empty string"},
      {R"("stream":"yes")", "stream must be true or false, got a string"},
      {R"("best_of":2)", "best_of needs use_beam_search to be true"},
      {R"("length_penalty":0.5)", "length_penalty needs use_beam_search to be true"},
      {R"("early_stopping":"never")", "early_stopping needs use_beam_search to be true"},
      {R"("use_beam_search":true,"stream":true)",
       "stream does not go with use_beam_search: its answers are found whole"},
      {R"("use_beam_search":true,"early_stopping":"no")",
       "early_stopping must be true, false or \"never\", got a string"},
      {R"("use_beam_search":true,"beam_width":65)",
       "beam_width must be an integer in [1, 64], got 65"},
      {R"("use_beam_search":true,"beam_width":2,"best_of":3)",
       "best_of is another name of beam_width: send one of them"},
      {R"("use_beam_search":true,"n":3,"beam_width":2)",
       "n must be at most the number of beams (2), got 3"},
      {R"("bad_words":["x"])",
       "bad_words is not supported: this model's engine takes no structured output"},
      {R"("thinking_budget":5)", "thinking_budget is not supported: /v1/chat/completions takes it"},
      {R"("response_format":{"type":"json_object"})",
       "response_format is not supported: this model's engine takes no structured output"},
  };
  for (const auto& [field, message] : cases) {
    const Json body = *parse_json("{\"prompt\":\"a\"," + field + "}");
    const Status status = parse_completion_request(body, kContext).status();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
  // Long words, which may be anybody's text, are not repeated.
  const Json body =
      *parse_json(R"({"prompt":"a","service_tier":")" + std::string(100, 'x') + "\"}");
  EXPECT_TRUE(parse_completion_request(body, kContext).status().message().ends_with("a string"));
}

}  // namespace
}  // namespace headrace::generation_request_test
