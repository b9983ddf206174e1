// Anthropic's Messages: fields against hostile values, what conversations are read into, and the
// words of answers.
#include <gtest/gtest.h>

#include "server/messages_format.h"
#include "server/messages_request.h"
#include "server/parameter_table_fixture.h"
#include "server/server_fixture.h"

namespace headrace::messages_test {
namespace {

using Kind = OutputEvent::Kind;

Json messages_base() {
  return *parse_json(R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}]})");
}

Status parse_messages_status(const Json& body) {
  return parse_messages_request(body, kContext).status();
}

// The chat that a body becomes, or the error.
std::string chat_of(std::string_view members) {
  const FieldContext context{.limits = kLimits, .vocab_size = 300, .reads_calls = true};
  const auto request = parse_messages_request(
      *parse_json("{\"max_tokens\":9," + std::string(members) + "}"), context);
  return request.ok() ? write_json(request->chat.messages) : request.status().message();
}

TEST(Messages, FieldsAgainstHostileValues) {
  const Accepted rows = {
      {"system", kAnyText},          {"messages", {}},
      {"stop_sequences", kTexts},    {"tools", {}},
      {"tool_choice", {}},           {"thinking", {}},
      {"output_config", {"object"}}, {"metadata", {"object"}},
      {"service_tier", {}},          {"chat_template_kwargs", {"object"}},
      {"output_format", {}},
  };
  check_table<MessagesRequest>(messages_fields(), rows, messages_base(), parse_messages_status,
                               {"messages"});
  const Accepted shared = {
      {"model", kTexts},     {"temperature", kUnitInterval},
      {"top_p", {"0.5"}},    {"top_k", {"-1", "0", "2^31-1"}},
      {"stream", kOnlyTrue},
  };
  for (const auto& [field, accepted] : shared) {
    check_field_rows(field, accepted, messages_base(), parse_messages_status);
  }
}

// What chat completions know and this API does not is refused rather than ignored.
TEST(Messages, FieldsOfChatsAreRefusedByName) {
  for (const auto& [field, value] : {std::pair{"n", "2"},
                                     {"stop", "\"x\""},
                                     {"user", "\"x\""},
                                     {"logit_bias", "{}"},
                                     {"response_format", R"({"type":"json_object"})"},
                                     {"guided_json", "{}"},
                                     {"container", "\"c\""},
                                     {"mcp_servers", "[1]"},
                                     {"speed", "\"fast\""},
                                     {"inference_geo", "\"us\""},
                                     {"context_management", R"({"edits":[{"type":"x"}]})"},
                                     {"chat_template", "\"x\""},
                                     {"include_reasoning", "true"},
                                     {"verbosity", "\"low\""},
                                     {"modalities", R"(["audio"])"}}) {
    Json body = messages_base();
    body.set(field, *parse_json(value));
    EXPECT_EQ(parse_messages_status(body).field(), field);
  }
  const auto own = names_of_own(messages_fields());
  for (const Field<ChatRequest>& field : chat_fields()) {
    if (own.contains(field.name)) continue;
    Json body = messages_base();
    body.set(field.name, true);
    EXPECT_EQ(parse_messages_status(body).field(), field.name);
  }
  Json harmless = messages_base();
  harmless.set("speed", "standard").set("mcp_servers", Json::array());
  harmless.set("cache_control", Json::object().set("type", "ephemeral"));
  harmless.set("context_management", *parse_json(R"({"edits":[{"type":"clear_thinking_1"}]})"));
  EXPECT_TRUE(parse_messages_status(harmless).ok()) << parse_messages_status(harmless).message();
}

// The field is one of chats, too, where it takes other words.
TEST(Messages, TiersAreThisApis) {
  for (const char* tier : {"auto", "standard_only"}) {
    Json body = messages_base();
    body.set("service_tier", tier);
    EXPECT_TRUE(parse_messages_status(body).ok()) << tier << parse_messages_status(body).message();
    EXPECT_TRUE(parse_count_tokens_request(body, kContext).ok()) << tier;
  }
  Json flex = messages_base();
  flex.set("service_tier", "flex");
  EXPECT_EQ(parse_messages_status(flex).field(), "service_tier");
}

TEST(Messages, WhatAnAnswerNeeds) {
  EXPECT_EQ(parse_messages_status(*parse_json(R"({"max_tokens":9})")).field(), "messages");
  Json body = messages_base();
  body.set("max_tokens", Json());
  EXPECT_EQ(parse_messages_status(body).field(), "max_tokens");
  EXPECT_TRUE(parse_count_tokens_request(body, kContext).ok());
  body.set("max_tokens", 0);
  EXPECT_EQ(parse_messages_status(body).field(), "max_tokens");
}

TEST(Messages, BlocksBecomeTurns) {
  EXPECT_EQ(
      chat_of(
          R"("system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{}}],
        "messages":[{"role":"user","content":"c"},{"role":"user","content":[{"type":"text","text":"d"}]},
          {"role":"system","content":"e"},{"role":"user","content":""}])"),
      R"([{"role":"system","content":"a\nb"},{"role":"user","content":"c\nd"},)"
      R"({"role":"system","content":"e"},{"role":"user","content":""}])");
}

TEST(Messages, CallsAndTheirResultsBecomeTurns) {
  EXPECT_EQ(chat_of(R"("messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
          {"type":"text","text":"w"},{"type":"tool_use","id":"1","name":"f","input":{"a":[1]}},
          {"type":"tool_use","id":"2","name":"g","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":"r"},
          {"type":"tool_result","tool_use_id":"1","is_error":true,
           "content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},
          {"type":"text","text":"go on"}]}])"),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"w","reasoning":"t",)"
            R"("reasoning_content":"t","tool_calls":[{"id":"1","type":"function","function":)"
            R"({"name":"f","arguments":{"a":[1]}}},{"id":"2","type":"function","function":)"
            R"({"name":"g","arguments":{}}}]},)"
            R"({"role":"tool","content":"r","tool_call_id":"2","name":"g"},)"
            R"({"role":"tool","content":"x\ny","tool_call_id":"1","name":"f"},)"
            R"({"role":"user","content":"go on"}])");
  EXPECT_EQ(chat_of(R"("messages":[{"role":"assistant","content":[
        {"type":"tool_use","id":"1","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}])"),
            R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":{}}}]},)"
            R"({"role":"tool","content":"","tool_call_id":"1","name":"f"}])");
}

TEST(Messages, BadBlocksAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([1])", "messages[0].role must be one of user, assistant, system, got null"},
      {R"([{"role":"tool","content":"x"}])", "got \"tool\""},
      {R"([{"role":"user"}])", "messages[0].content is missing"},
      {R"([{"role":"user","content":null}])", "a string or an array of blocks, got null"},
      {R"([{"role":"user","content":[1]}])", "messages[0].content[0].type must be one of"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "content[0].text is missing"},
      {R"([{"role":"user","content":[{"type":"image"}]}])", "models see no images"},
      {R"([{"role":"user","content":[{"type":"document"}]}])", "models see no images"},
      {R"([{"role":"user","content":[{"type":"thinking","thinking":"x"}]}])", "got \"thinking\""},
      {R"([{"role":"assistant","content":[{"type":"redacted_thinking"}]}])", "leave it out"},
      {R"([{"role":"assistant","content":[{"type":"tool_result"}]}])", "got \"tool_result\""},
      {R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]}])",
       "messages[0].content[0].input must be an object"},
      {R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"7"}]}])",
       "messages[0].content[0].tool_use_id is the id of no tool_use before it"},
      {R"([{"role":"user","content":"a"},{"role":"assistant","content":"b "}])",
       "must not end with white space"},
      {R"([{"role":"user","content":"a"},{"role":"assistant","content":""}])", "empty text"},
      {R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}])",
       "must not end with a tool_use"},
      {R"([{"role":"user","content":[]}])", "a block at least"},
  };
  for (const auto& [messages, error] : cases) {
    Json body = messages_base();
    body.set("messages", *parse_json(messages));
    const Status status = parse_messages_status(body);
    EXPECT_EQ(status.field(), "messages");
    EXPECT_NE(status.message().find(error), std::string::npos) << status.message();
  }
}

TEST(Messages, ALastTurnOfTheAssistantIsTheBeginOfTheAnswer) {
  Json body = messages_base();
  body.set("messages", *parse_json(R"([{"role":"user","content":"a"}])"));
  EXPECT_FALSE(parse_messages_request(body, kContext)->chat.continue_final_message);
  body.set("messages", *parse_json(R"([{"role":"user","content":"a"},)"
                                   R"({"role":"assistant","content":"b"}])"));
  const auto request = parse_messages_request(body, kContext);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->chat.continue_final_message);
  EXPECT_TRUE(parse_count_tokens_request(body, kContext)->chat.continue_final_message);
}

TEST(Messages, ToolsAndTheirChoice) {
  const FieldContext context{.limits = kLimits, .vocab_size = 300, .reads_calls = true};
  const auto parse = [&](std::string_view members, const FieldContext& with) {
    Json body = messages_base();
    const Json extra = *parse_json("{" + std::string(members) + "}");
    for (const auto& [name, value] : extra.as_object()) {
      body.set(name, value);
    }
    return parse_messages_request(body, with);
  };
  const std::string tools =
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])";
  const auto request = parse(tools, context);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->chat.reads_calls);
  EXPECT_EQ(write_json(request->chat.template_variables),
            R"({"tools":[{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}}]})");
  EXPECT_FALSE(parse(tools + R"(,"tool_choice":{"type":"none"})", context)->chat.reads_calls);
  EXPECT_FALSE(
      parse(tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})", context)
          ->chat.parallel_tool_calls);
  for (std::string_view forced : {R"({"type":"any"})", R"({"type":"tool","name":"f"})"}) {
    const Status status =
        parse(tools + ",\"tool_choice\":" + std::string(forced), context).status();
    EXPECT_EQ(status.field(), "tool_choice");
    EXPECT_NE(status.message().find("cannot be forced"), std::string::npos) << status.message();
  }
  EXPECT_EQ(parse(tools, kContext).status().field(), "tools");  // calls are not read
  EXPECT_TRUE(parse(tools + R"(,"tool_choice":{"type":"none"})", kContext).ok());
  for (std::string_view bad :
       {R"([{"name":"f"}])", R"([{"input_schema":{}}])", R"([{"name":"","input_schema":{}}])",
        R"([{"name":"f","input_schema":1}])", R"([{"type":"bash_20250124","name":"bash"}])",
        R"([{"name":"f","input_schema":{},"strict":true}])", "[1]", "{}"}) {
    EXPECT_EQ(parse("\"tools\":" + std::string(bad), context).status().field(), "tools") << bad;
  }
}

TEST(Messages, ThinkingReachesTheTemplate) {
  const std::string_view source =
      "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}|{{ reasoning_effort }}";
  ServerFixture f({}, "x", {}, false);
  f.model.chat_template = std::make_unique<ChatTemplate>(std::move(*ChatTemplate::compile(source)));
  ASSERT_TRUE(f.server->set_ready(f.model.served()).ok());
  const auto prompt = [&](std::string_view members) {
    const TestResponse response =
        f.post("/v1/messages", R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}])" +
                                   std::string(members) + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return f.model.tokenizer->decode(f.model.engine->last_request().prompt, false);
  };
  EXPECT_EQ(prompt(""), "|");
  EXPECT_EQ(prompt(R"(,"thinking":{"type":"enabled","budget_tokens":2000})"), "True|");
  EXPECT_EQ(prompt(R"(,"thinking":{"type":"disabled"})"), "False|");
  EXPECT_EQ(prompt(R"(,"output_config":{"effort":"high"})"), "|high");
  EXPECT_EQ(
      prompt(R"(,"thinking":{"type":"disabled"},"chat_template_kwargs":{"enable_thinking":1})"),
      "1|");
  // Where the template reads neither, they are wishes.
  ServerFixture plain;
  EXPECT_EQ(plain
                .post("/v1/messages",
                      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],)"
                      R"("thinking":{"type":"adaptive"},"output_config":{"effort":"max"}})")
                .status,
            200);
}

TEST(Messages, MaxTokensIsNoMoreThanTheContextLeaves) {
  ServerFixture f;
  EXPECT_EQ(
      f.post("/v1/messages", R"({"max_tokens":100000,"messages":[{"role":"user","content":"hi"}]})")
          .status,
      200);
  const Request request = f.model.engine->last_request();
  EXPECT_EQ(request.sampling.max_tokens, 4096 - static_cast<int32_t>(request.prompt.size()));
}

// --- Answers
// ---------------------------------------------------------------------------------------

// All that the words of an answer can depend on.
const OutputEvents kSaid = {{Kind::kReasoning, "hm", -1, ""}, {Kind::kContent, "a", -1, ""},
                            {Kind::kCallBegin, "f", 0, ""},   {Kind::kArguments, "{\"x\":", 0, ""},
                            {Kind::kArguments, "1}", 0, ""},  {Kind::kCallEnd, "", 0, ""},
                            {Kind::kCallBegin, "g", 1, "own"}};

std::unique_ptr<AnswerFormat> format_of(AnswerHead head = {}) {
  head.id = "msg_1";
  head.model = "m";
  return make_messages_format(std::move(head), {.max_tokens = 100, .context = 1000});
}

std::string whole_of(const ChoiceDelta& answer, Usage usage = {.prompt_tokens = 10}) {
  return write_json(format_of()->whole(std::span(&answer, 1), usage));
}

TEST(MessagesFormat, AWholeAnswer) {
  ChoiceDelta answer;
  answer.events = kSaid;
  answer.finish = FinishReason::kLength;
  AnswerHead head;
  const std::string id = call_id(head, 0, 0);
  EXPECT_EQ(whole_of(answer, {.prompt_tokens = 10, .completion_tokens = 7, .cached_tokens = 8}),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"hm","signature":"msg_1"},{"type":"text","text":"a"},)"
            R"({"type":"tool_use","id":")" +
                id +
                R"(","name":"f","input":{"x":1}}],"stop_reason":"max_tokens","stop_sequence":null,)"
                R"("usage":{"input_tokens":2,"cache_creation_input_tokens":0,)"
                R"("cache_read_input_tokens":8,"output_tokens":7}})");
}

TEST(MessagesFormat, ReasonsOfTheEnd) {
  const auto ends = [](FinishReason finish, bool called, StopReason stop, Usage usage = {}) {
    ChoiceDelta answer;
    answer.finish = finish;
    answer.called = called;
    answer.stop_reason = std::move(stop);
    const Json json = *parse_json(whole_of(answer, usage));
    return write_json(at(json, "stop_reason")) + write_json(at(json, "stop_sequence"));
  };
  EXPECT_EQ(ends(FinishReason::kStop, false, {}), "\"end_turn\"null");
  EXPECT_EQ(ends(FinishReason::kStop, true, "x"), "\"tool_use\"null");
  EXPECT_EQ(ends(FinishReason::kStop, false, "x"), "\"stop_sequence\"\"x\"");
  EXPECT_EQ(ends(FinishReason::kLength, true, {}), "\"max_tokens\"null");
  EXPECT_EQ(ends(FinishReason::kLength, false, {}, {.prompt_tokens = 950, .completion_tokens = 50}),
            "\"model_context_window_exceeded\"null");
  EXPECT_EQ(
      ends(FinishReason::kLength, false, {}, {.prompt_tokens = 900, .completion_tokens = 100}),
      "\"max_tokens\"null");
}

// Arguments that are no object are a call without any: its tool says what it lacks.
TEST(MessagesFormat, BrokenArguments) {
  ChoiceDelta answer;
  answer.events = {{Kind::kCallBegin, "f", 0, "1"},
                   {Kind::kArguments, "{\"x\":", 0, ""},
                   {Kind::kCallEnd, "", 0, ""}};
  answer.finish = FinishReason::kStop;
  answer.called = true;
  EXPECT_NE(whole_of(answer).find(R"([{"type":"tool_use","id":"1","name":"f","input":{}}])"),
            std::string::npos);
}

// Each event on its own, or all at once: the same stream but for how texts are cut.
TEST(MessagesFormat, AStream) {
  std::string out;
  const auto format = format_of();
  const Usage usage{.prompt_tokens = 10, .completion_tokens = 7};
  format->append_begin(out, usage);
  for (const OutputEvent& event : kSaid) {
    ChoiceDelta delta;
    delta.events = {event};
    for (const Json& json : format->events(0, false, delta)) format->append_event(out, json);
  }
  ChoiceDelta end;
  end.finish = FinishReason::kStop;
  end.called = true;
  EXPECT_TRUE(format->events(0, false, end).empty());
  format->append_end(out, usage, false);
  std::vector<std::string> lines;
  for (size_t from = 0; from < out.size();) {
    const size_t stop = out.find("\n\n", from);
    ASSERT_NE(stop, std::string::npos);
    const std::string event = out.substr(from, stop - from);
    const size_t data = event.find("\ndata: ");
    ASSERT_NE(data, std::string::npos) << event;
    const Json json = *parse_json(std::string_view(event).substr(data + 7));
    EXPECT_EQ(event.substr(0, data), "event: " + at(json, "type").as_string());
    lines.push_back(event.substr(data + 7));
    from = stop + 2;
  }
  const std::string usage_text = R"("usage":{"input_tokens":10,"cache_creation_input_tokens":0,)"
                                 R"("cache_read_input_tokens":0,"output_tokens":7})";
  AnswerHead head;
  const std::vector<std::string> expected = {
      R"({"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",)"
      R"("model":"m","content":[],"stop_reason":null,"stop_sequence":null,)" +
          usage_text + "}}",
      R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}})",
      R"({"type":"ping"})",
      R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})",
      R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"msg_1"}})",
      R"({"type":"content_block_stop","index":0})",
      R"({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})",
      R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}})",
      R"({"type":"content_block_stop","index":1})",
      R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":")" +
          call_id(head, 0, 0) + R"(","name":"f","input":{}}})",
      R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}})",
      R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}})",
      R"({"type":"content_block_stop","index":2})",
      R"({"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"own","name":"g","input":{}}})",
      R"({"type":"content_block_stop","index":3})",
      R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)" +
          usage_text + "}",
      R"({"type":"message_stop"})",
  };
  EXPECT_EQ(lines, expected);
}

TEST(MessagesFormat, AFaultInAStreamIsAnEvent) {
  std::string out;
  format_of()->append_error(out, 503, "the server shuts down");
  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
            "\"message\":\"the server shuts down\"}}\n\n");
}

// Whatever refuses, before the route's handler or in it.
TEST(Messages, ErrorsAreInTheApisShape) {
  ServerOptions options;
  options.api_keys = {"right"};
  ServerFixture f({}, "x", options);
  const std::string_view key = "X-API-Key: right\r\n";
  const auto expect = [&](const TestResponse& response, int status, std::string_view type) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json json = response.json();
    EXPECT_EQ(at(json, "type"), Json("error")) << response.body;
    EXPECT_EQ(at(at(json, "error"), "type"), Json(type));
    EXPECT_FALSE(at(at(json, "error"), "message").as_string().empty());
    EXPECT_EQ(response.headers.at("request-id"), response.headers.at("x-request-id"));
  };
  expect(f.post("/v1/messages", "{}"), 401, "authentication_error");
  expect(f.post("/v1/messages", "{", key), 400, "invalid_request_error");
  expect(f.post("/v1/messages", "{}", key), 400, "invalid_request_error");
  expect(f.get("/v1/messages", key), 405, "invalid_request_error");
  expect(f.get("/v1/messages/1", key), 404, "not_found_error");
  f.model.engine->fail_next_emission();
  expect(f.post("/v1/messages", R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}]})",
                key),
         500, "api_error");
  EXPECT_EQ(f.post("/v1/chat/completions", "{}", key).headers.count("request-id"), 0u);
}

}  // namespace
}  // namespace headrace::messages_test
