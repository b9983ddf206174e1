// OpenAI's Responses: fields against hostile values, what items are read into, the words of
// answers, and what is stored of them.
#include <gtest/gtest.h>

#include "server/parameter_table_fixture.h"
#include "server/response_format.h"
#include "server/response_input.h"
#include "server/response_request.h"
#include "server/response_store.h"
#include "server/server_fixture.h"

namespace headrace::responses_test {
namespace {

using Event = OutputEvent::Kind;

Json response_base() { return *parse_json(R"({"input":"hi"})"); }

Status parse_response_status(const Json& body) {
  return parse_response_request(body, kContext, {}).status();
}

TEST(Responses, FieldsAgainstHostileValues) {
  const Accepted rows = {
      {"instructions", kAnyText},
      {"previous_response_id", kTexts},
      {"input", kAnyText},
      {"max_output_tokens", kLength},
      {"max_tool_calls", kLength},
      {"metadata", {}},  // values of texts only
      {"parallel_tool_calls", kOnlyTrue},
      {"prompt_cache_key", kTexts},
      {"safety_identifier", kTexts},
      {"reasoning", {"object"}},
      {"store", kOnlyTrue},
      {"background", kOnlyTrue},
      {"text", {"object"}},
      {"tools", {}},
      {"truncation", {}},
      {"include", {}},
      {"chat_template_kwargs", {"object"}},
  };
  check_table<ResponseRequest>(response_fields(), rows, response_base(), parse_response_status,
                               {"input"});
  check_field_rows("temperature", kUnitInterval, response_base(), parse_response_status);
  check_field_rows("user", kTexts, response_base(), parse_response_status);
  check_field_rows("stream_options", {"object"}, response_base(), parse_response_status);
  EXPECT_EQ(parse_response_status(Json::object()).field(), "input");
}

TEST(Responses, WhatIsNotServedIsRefusedByName) {
  for (const auto& [field, value] : {std::pair{"conversation", "\"c\""},
                                     {"prompt", R"({"id":"p"})"},
                                     {"context_management", "[1]"},
                                     {"moderation", "{}"},
                                     {"top_logprobs", "1"},
                                     {"tool_choice", "\"required\""},
                                     {"tool_choice", R"({"type":"function","name":"f"})"},
                                     {"messages", "[]"},
                                     {"n", "2"},
                                     {"stop", "\"x\""},
                                     {"max_tokens", "5"},
                                     {"response_format", R"({"type":"json_object"})"},
                                     {"include", R"(["message.output_text.logprobs"])"},
                                     {"include", R"(["x"])"},
                                     {"chat_template", "\"x\""},
                                     {"include_reasoning", "false"},
                                     {"verbosity", "\"low\""},
                                     {"timings_per_token", "true"}}) {
    Json body = response_base();
    body.set(field, *parse_json(value));
    EXPECT_EQ(parse_response_status(body).field(), field);
  }
  const auto own = names_of_own(response_fields());
  for (const Field<ChatRequest>& field : chat_fields()) {
    if (own.contains(field.name) || field.name == "top_logprobs") continue;
    Json body = response_base();
    body.set(field.name, true);
    EXPECT_EQ(parse_response_status(body).field(), field.name);
  }
  Json harmless = response_base();
  harmless.set("background", false).set("top_logprobs", 0).set("tool_choice", "auto");
  harmless.set("include", Json::Array{Json("reasoning.encrypted_content")});
  EXPECT_TRUE(parse_response_status(harmless).ok()) << parse_response_status(harmless).message();
}

// The chat that a body becomes, or the error.
std::string conversation_of(std::string_view body, std::vector<Json> earlier = {}) {
  const auto request = parse_response_request(*parse_json(body), kContext, std::move(earlier));
  return request.ok() ? write_json(request->chat.messages) : request.status().message();
}

TEST(Responses, ItemsBecomeTurns) {
  EXPECT_EQ(conversation_of(R"({"input":"hi","instructions":"be"})"),
            R"([{"role":"system","content":"be"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(
      conversation_of(R"({"input":[{"role":"developer","content":"d"},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
        {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"t"}],"encrypted_content":null},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"w","annotations":[]}]},
        {"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":[1]}"},
        {"type":"function_call","call_id":"2","name":"g","arguments":""},
        {"type":"function_call_output","call_id":"2","output":"r"},
        {"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"s"}]}]})"),
      R"([{"role":"developer","content":"d"},{"role":"user","content":"a\nb"},)"
      R"({"role":"assistant","content":"w","reasoning":"t","reasoning_content":"t","tool_calls":)"
      R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"a":[1]}}},)"
      R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","content":"r","tool_call_id":"2","name":"g"},)"
      R"({"role":"tool","content":"s","tool_call_id":"1","name":"f"}])");
}

TEST(Responses, EarlierItemsComeBetweenInstructionsAndInput) {
  EXPECT_EQ(conversation_of(R"({"input":"c","instructions":"be"})",
                            {*parse_json(R"([{"role":"user","content":"a"}])"),
                             *parse_json(R"([{"role":"assistant","content":"b"}])")}),
            R"([{"role":"system","content":"be"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"},{"role":"user","content":"c"}])");
}

TEST(Responses, BadItemsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "input must be a string or an array of 1 to 16384 items"},
      {"[1]", "input[0] must be an object, got 1"},
      {"[{}]", "input[0].type must be one of message, function_call"},
      {R"([{"type":"item_reference","id":"x"}])", "got \"item_reference\""},
      {R"([{"type":1,"role":"user","content":"x"}])", "input[0].type must be one of"},
      {R"([{"role":"tool","content":"x"}])", "input[0].role must be one of user"},
      {R"([{"role":"user"}])", "input[0].content is missing"},
      {R"([{"role":"user","content":1}])", "input[0].content must be a string or an array"},
      {R"([{"role":"user","content":[{"type":"input_image"}]}])", "models see no images"},
      {R"([{"role":"user","content":[{"type":"x"}]}])", "input[0].content[0].type must be one of"},
      {R"([{"role":"user","content":[{"type":"input_text"}]}])", "content[0].text is missing"},
      {R"([{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id is missing"},
      {R"([{"type":"function_call","call_id":"1","name":"f","arguments":"[]"}])",
       "input[0].arguments must be a JSON object in a string"},
      {R"([{"type":"function_call_output","call_id":"1","output":"x"}])",
       "input[0].call_id is that of no function_call before it"},
  };
  for (const auto& [input, error] : cases) {
    Json body = response_base();
    body.set("input", *parse_json(input));
    const Status status = parse_response_status(body);
    EXPECT_EQ(status.field(), "input");
    EXPECT_NE(status.message().find(error), std::string::npos) << status.message();
  }
}

TEST(Responses, FunctionsBecomeTools) {
  const FieldContext context{.limits = kLimits, .vocab_size = 300, .reads_calls = true};
  const auto parse = [&](std::string_view tools) {
    Json body = response_base();
    body.set("tools", *parse_json(tools));
    return parse_response_request(body, context, {});
  };
  const auto request = parse(
      R"([{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":false}])");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->chat.reads_calls);
  EXPECT_EQ(
      write_json(request->chat.template_variables),
      R"({"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})");
  for (std::string_view bad : {"{}", "[1]", R"([{"type":"web_search"}])",
                               R"([{"type":"function"}])", R"([{"type":"function","name":""}])",
                               R"([{"type":"function","name":"f","strict":true}])"}) {
    EXPECT_EQ(parse(bad).status().field(), "tools") << bad;
  }
}

// --- Answers
// ---------------------------------------------------------------------------------------

const OutputEvents kAnswered = {
    {Event::kReasoning, "hm", -1, ""},  {Event::kContent, "a", -1, ""},
    {Event::kCallBegin, "f", 0, "own"}, {Event::kArguments, "{}", 0, ""},
    {Event::kCallEnd, "", 0, ""},       {Event::kCallBegin, "g", 1, "cut"}};

struct Kept {
  std::vector<std::string> responses;
  std::unique_ptr<AnswerFormat> format() {
    AnswerHead head;
    head.id = "resp_1";
    head.created_unix_s = 7;
    head.model = "m";
    ResponseFrame frame;
    frame.request = Json::object().set("store", true);
    frame.keep = [this](const std::string&, const Json& response, const Json&) {
      responses.push_back(write_json(response));
    };
    return make_response_format(std::move(head), std::move(frame));
  }
};

constexpr std::string_view kItems =
    R"([{"id":"rs_1_0","type":"reasoning","summary":[],"content":[{"type":"reasoning_text",)"
    R"("text":"hm"}],"status":"completed"},{"id":"msg_1_1","type":"message","role":"assistant",)"
    R"("content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}],)"
    R"("status":"completed"},{"id":"fc_1_2","type":"function_call","name":"f","arguments":"{}",)"
    R"("call_id":"own","status":"completed"},{"id":"fc_1_3","type":"function_call","name":"g",)"
    R"("arguments":"","call_id":"cut","status":"incomplete"}])";

TEST(ResponseFormat, AWholeAnswer) {
  Kept kept;
  ChoiceDelta answer;
  answer.events = kAnswered;
  answer.finish = FinishReason::kLength;
  const Json json = kept.format()->whole(
      std::span(&answer, 1),
      {.prompt_tokens = 10, .completion_tokens = 7, .cached_tokens = 8, .reasoning_tokens = 2});
  EXPECT_EQ(
      write_json(json),
      R"({"id":"resp_1","object":"response","created_at":7,"status":"incomplete","error":null,)"
      R"("incomplete_details":{"reason":"max_output_tokens"},"model":"m","output":)" +
          std::string(kItems) +
          R"(,"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,)"
          R"("cache_write_tokens":0},"output_tokens":7,"output_tokens_details":)"
          R"({"reasoning_tokens":2},"total_tokens":17},"store":true})");
  EXPECT_EQ(kept.responses, std::vector<std::string>{write_json(json)});
}

TEST(ResponseFormat, AStream) {
  Kept kept;
  const auto format = kept.format();
  std::string out;
  format->append_begin(out, {});
  for (const OutputEvent& event : kAnswered) {
    ChoiceDelta delta;
    delta.events = {event};
    for (const Json& json : format->events(0, false, delta)) format->append_event(out, json);
  }
  ChoiceDelta end;
  end.finish = FinishReason::kStop;
  EXPECT_TRUE(format->events(0, false, end).empty());
  format->append_end(out, {}, false);
  std::vector<std::string> names;
  Json last;
  for (size_t from = 0; from < out.size();) {
    const size_t stop = out.find("\n\n", from);
    const size_t data = out.find("\ndata: ", from);
    ASSERT_LT(data, stop);
    last = *parse_json(std::string_view(out).substr(data + 7, stop - data - 7));
    EXPECT_EQ(out.substr(from, data - from), "event: " + at(last, "type").as_string());
    EXPECT_EQ(at(last, "sequence_number"), Json(names.size()));
    names.push_back(at(last, "type").as_string().substr(std::string_view("response.").size()));
    from = stop + 2;
  }
  const std::vector<std::string> expected = {
      "created", "in_progress",
      // the thought
      "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
      "content_part.done", "output_item.done",
      // the words
      "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
      "content_part.done", "output_item.done",
      // the calls
      "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
      "output_item.done", "output_item.added", "function_call_arguments.done", "output_item.done",
      "completed"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(write_json(at(at(last, "response"), "output")), kItems);
  EXPECT_EQ(kept.responses, std::vector<std::string>{write_json(at(last, "response"))});
}

TEST(ResponseFormat, AFaultInAStreamIsAFailedResponse) {
  Kept kept;
  const auto format = kept.format();
  std::string out;
  format->append_begin(out, {});
  out.clear();
  format->append_error(out, 503, "the server shuts down");
  EXPECT_EQ(out.find("event: response.failed\ndata: {\"type\":\"response.failed\","
                     "\"sequence_number\":2,"),
            0u)
      << out;
  EXPECT_NE(out.find(R"("status":"failed","error":{"code":"server_error","message":)"
                     R"("the server shuts down"})"),
            std::string::npos)
      << out;
  EXPECT_TRUE(kept.responses.empty());
}

// One that was kept awake in the queue and refused there has a beginning like any other.
TEST(ResponseFormat, AFaultBeforeTheBeginningHasOne) {
  Kept kept;
  std::string out;
  kept.format()->append_error(out, 503, "the request waited too long");
  const size_t created = out.find("event: response.created\n"),
               in_progress = out.find("event: response.in_progress\n"),
               failed = out.find("event: response.failed\n");
  EXPECT_EQ(created, 0u) << out;
  EXPECT_LT(created, in_progress);
  EXPECT_LT(in_progress, failed);
  EXPECT_NE(out.find("\"sequence_number\":2", failed), out.npos) << out;
}

// --- The store
// ------------------------------------------------------------------------------------

StoredResponse stored_after(std::string previous, size_t bytes = 10) {
  return {.response = std::string(bytes, 'x'),
          .input_items = "[]",
          .output_items = "[]",
          .previous = std::move(previous)};
}

TEST(ResponseStore, OwnersAreApart) {
  ResponseStore store(1 << 20);
  store.put("a", "1", stored_after(""));
  EXPECT_TRUE(store.find("a", "1"));
  EXPECT_FALSE(store.find("b", "1"));
  EXPECT_FALSE(store.erase("b", "1"));
  EXPECT_FALSE(store.conversation("b", "1"));
  EXPECT_TRUE(store.erase("a", "1"));
  EXPECT_FALSE(store.find("a", "1"));
  EXPECT_FALSE(store.erase("a", "1"));
}

TEST(ResponseStore, WhatWasUsedLongestAgoMakesRoom) {
  const size_t one = stored_after("").bytes();
  ResponseStore store(3 * one);
  for (const char* id : {"1", "2", "3"}) store.put("a", id, stored_after(""));
  store.put("b", "1", stored_after(""));  // of another's room
  EXPECT_TRUE(store.find("a", "1"));
  store.put("a", "4", stored_after(""));
  EXPECT_FALSE(store.find("a", "2"));
  EXPECT_TRUE(store.find("a", "1"));
  store.put("a", "5", stored_after("", 10 * one));  // larger than all
  EXPECT_FALSE(store.find("a", "5"));
  EXPECT_TRUE(store.find("a", "3"));
  store.put("a", "6", stored_after("", 10 + one));  // as two
  EXPECT_TRUE(store.find("a", "6"));
  EXPECT_TRUE(store.find("a", "3"));
  EXPECT_FALSE(store.find("a", "1"));
  EXPECT_FALSE(store.find("a", "4"));
  ResponseStore none(0);
  EXPECT_FALSE(none.keeps_some());
  none.put("a", "1", stored_after(""));
  EXPECT_FALSE(none.find("a", "1"));
}

TEST(ResponseStore, WhatIsPutAgainTakesThePlaceOfWhatWasThere) {
  const size_t one = stored_after("").bytes();
  ResponseStore store(3 * one);
  for (const char* id : {"1", "1", "1", "2", "3"}) store.put("a", id, stored_after(""));
  for (const char* id : {"1", "2", "3"}) EXPECT_TRUE(store.find("a", id)) << id;
  store.put("a", "3", stored_after("", 10 * one));  // too large
  EXPECT_TRUE(store.find("a", "3"));
}

// Whoever goes on with a conversation keeps all of it.
TEST(ResponseStore, AConversationIsUsedAsAWhole) {
  const size_t one = stored_after("1").bytes();
  ResponseStore store(4 * one);
  store.put("a", "1", stored_after(""));
  store.put("a", "2", stored_after("1"));
  store.put("a", "x", stored_after(""));
  const auto both = store.conversation("a", "2");
  ASSERT_TRUE(both);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_TRUE((*both)[0]->previous.empty());
  EXPECT_EQ((*both)[1]->previous, "1");
  store.put("a", "3", stored_after("2"));
  store.put("a", "4", stored_after("3"));
  EXPECT_FALSE(store.find("a", "x"));
  EXPECT_EQ(store.conversation("a", "4")->size(), 4u);
  EXPECT_TRUE(store.erase("a", "2"));
  EXPECT_FALSE(store.conversation("a", "4"));
  EXPECT_EQ(store.conversation("a", "1")->size(), 1u);
}

TEST(ResponseItems, WhatMeansNothingHereIsNotKept) {
  const Json input = *parse_json(
      R"([{"role":"user","junk":[0,0,0],"content":[{"type":"input_text","text":"a","more":{}}]}])");
  const Result<Json> items = response_items(input, 10);
  ASSERT_TRUE(items.ok()) << items.status().message();
  const Json& item = items->as_array()[0];
  EXPECT_EQ(item.find("junk"), nullptr);
  const Json& part = item.find("content")->as_array()[0];
  EXPECT_EQ(part.find("more"), nullptr);
  EXPECT_EQ(*part.find("text"), Json("a"));
}

}  // namespace
}  // namespace headrace::responses_test
