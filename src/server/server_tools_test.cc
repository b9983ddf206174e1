// Calls of tools and thoughts over HTTP: whole and streamed answers say the same.
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::server_tools_test {
namespace {

constexpr std::string_view kCall =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"K\xC3\xB6ln\"}}\n"
    "</tool_call>";
constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",
       "properties":{"city":{"type":"string"}}}}}],)";

struct ToolFixture : ServerFixture {
  explicit ToolFixture(std::string_view script, std::string_view chat_template = {},
                       FakeEngineOptions engine = {})
      : ServerFixture(std::move(engine), script, {}, false) {
    if (!chat_template.empty()) {
      model.chat_template =
          std::make_unique<ChatTemplate>(std::move(*ChatTemplate::compile(chat_template)));
    }
    ServedModel served = model.served();
    served.tool_call_parser = "hermes";
    served.reasoning_parser = "qwen3";
    CHECK(server->set_ready(served).ok());
  }
  TestResponse chat(std::string_view fields) {
    return post(kChatPath, R"({"messages":[{"role":"user","content":"hi"}],)" +
                               std::string(fields) + R"("max_tokens":1000})");
  }
  Json message(std::string_view fields) { return at(choice(chat(fields).json()), "message"); }
};

// What a client adds up of a stream.
struct Streamed {
  std::string content, reasoning, finish;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::set<std::string> ids;
  size_t logprobs = 0;
};

Streamed add_up(const TestResponse& response) {
  Streamed sum;
  for (const std::string& data : response.events()) {
    if (data == "[DONE]") continue;
    const Json event = *parse_json(data);
    if (at(event, "choices").as_array().empty()) continue;
    const Json& delta = at(choice(event), "delta");
    if (const Json* text = delta.find("content")) sum.content += text->as_string();
    if (const Json* text = delta.find("reasoning")) {
      sum.reasoning += text->as_string();
      EXPECT_EQ(at(delta, "reasoning_content"), *text);
    }
    if (const Json* calls = delta.find("tool_calls")) {
      EXPECT_EQ(calls->as_array().size(), 1u);
      const Json& call = calls->as_array().at(0);
      const Json& function = at(call, "function");
      const auto index = static_cast<size_t>(at(call, "index").as_int());
      if (const Json* id = call.find("id")) {
        EXPECT_EQ(index, sum.calls.size());
        EXPECT_EQ(at(call, "type"), Json("function"));
        sum.ids.insert(id->as_string());
        sum.calls.emplace_back(at(function, "name").as_string(), "");
      }
      sum.calls.at(index).second += at(function, "arguments").as_string();
    }
    const Json* logprobs = choice(event).find("logprobs");
    if (logprobs && !logprobs->is_null()) {
      sum.logprobs += at(*logprobs, "content").as_array().size();
    }
    const Json& finish = at(choice(event), "finish_reason");
    if (!finish.is_null()) sum.finish = finish.as_string();
  }
  return sum;
}

TEST(ServerTools, ACallIsReadOutOfTheAnswer) {
  ToolFixture f(kCall);
  const Json answer = f.chat(kTools).json();
  EXPECT_EQ(at(choice(answer), "finish_reason"), Json("tool_calls"));
  const Json& message = at(choice(answer), "message");
  EXPECT_TRUE(at(message, "content").is_null());
  const Json& call = at(message, "tool_calls").as_array().at(0);
  EXPECT_EQ(at(call, "type"), Json("function"));
  EXPECT_TRUE(at(call, "id").as_string().starts_with("call_"));
  EXPECT_EQ(at(at(call, "function"), "name"), Json("get_weather"));
  EXPECT_EQ(at(at(call, "function"), "arguments"), Json("{\"city\": \"K\xC3\xB6ln\"}"));
}

TEST(ServerTools, AStreamSaysTheSame) {
  const std::string script =
      "<think>\nHm.\n</think>\n\nLet me look.\n" + std::string(kCall) + "\n" + std::string(kCall);
  ToolFixture f(script);
  const Json message = f.message(kTools);
  const Streamed sum = add_up(f.chat(std::string(kTools) + R"("stream":true,"logprobs":true,)"));
  EXPECT_EQ(sum.content, "Let me look.");
  EXPECT_EQ(sum.reasoning, "Hm.");
  EXPECT_EQ(sum.finish, "tool_calls");
  EXPECT_EQ(sum.logprobs, script.size() + 1);
  EXPECT_EQ(at(message, "content"), Json(sum.content));
  EXPECT_EQ(at(message, "reasoning"), Json(sum.reasoning));
  EXPECT_EQ(at(message, "reasoning_content"), Json(sum.reasoning));
  ASSERT_EQ(sum.calls.size(), 2u);
  EXPECT_EQ(sum.ids.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json& function = at(at(message, "tool_calls").as_array().at(i), "function");
    EXPECT_EQ(at(function, "name"), Json(sum.calls[i].first));
    EXPECT_EQ(at(function, "arguments"), Json(sum.calls[i].second));
  }
}

TEST(ServerTools, IdsComeAgainWithTheSeedAndDifferBetweenTurns) {
  ToolFixture f(kCall);
  const auto id = [&](std::string_view fields) {
    const Json message = f.message(std::string(kTools) + std::string(fields));
    return at(at(message, "tool_calls").as_array().at(0), "id").as_string();
  };
  EXPECT_EQ(id(R"("seed":1,)"), id(R"("seed":1,)"));
  EXPECT_NE(id(R"("seed":1,)"), id(R"("seed":2,)"));
  EXPECT_NE(id(""), id(""));
  const Json two = f.chat(std::string(kTools) + R"("n":2,"seed":1,)").json();
  const auto call_of = [&](size_t index) {
    return at(at(choice(two, index), "message"), "tool_calls").as_array().at(0);
  };
  EXPECT_NE(at(call_of(0), "id"), at(call_of(1), "id"));
}

TEST(ServerTools, WhatIsNoCallOrNotAskedForIsText) {
  ToolFixture f(kCall);
  EXPECT_EQ(at(f.message(""), "content"), Json(kCall));
  const Json message = f.message(std::string(kTools) + R"("tool_choice":"none",)");
  EXPECT_EQ(at(message, "content"), Json(kCall));
  EXPECT_EQ(message.find("tool_calls"), nullptr);
  ToolFixture broken("<tool_call>\nget_weather()\n</tool_call>");
  const Json answer = broken.chat(kTools).json();
  EXPECT_EQ(at(at(choice(answer), "message"), "content"),
            Json("<tool_call>\nget_weather()\n</tool_call>"));
  EXPECT_EQ(at(choice(answer), "finish_reason"), Json("stop"));
}

TEST(ServerTools, LengthStopsAndOneCallEndAnAnswer) {
  ToolFixture f(std::string(kCall) + std::string(kCall));
  const Json cut = f.post(kChatPath, R"({"messages":[{"role":"user","content":"hi"}],)" +
                                         std::string(kTools) + R"("max_tokens":60})")
                       .json();
  EXPECT_EQ(at(choice(cut), "finish_reason"), Json("length"));
  const Json& call = at(at(choice(cut), "message"), "tool_calls").as_array().at(0);
  EXPECT_EQ(at(at(call, "function"), "arguments"), Json("{\"city\": \"K"));

  const Json stopped = f.chat(std::string(kTools) + R"("stop":"</tool_call>",)").json();
  EXPECT_EQ(at(choice(stopped), "finish_reason"), Json("tool_calls"));
  EXPECT_EQ(at(choice(stopped), "stop_reason"), Json("</tool_call>"));

  const Json one = f.chat(std::string(kTools) + R"("parallel_tool_calls":false,)").json();
  EXPECT_EQ(at(at(choice(one), "message"), "tool_calls").as_array().size(), 1u);
  EXPECT_EQ(at(choice(one), "finish_reason"), Json("tool_calls"));
  EXPECT_LT(at(at(one, "usage"), "completion_tokens").as_int(), static_cast<int64_t>(kCall.size()));
}

TEST(ServerTools, ThoughtsGoWhereTheyAreAskedFor) {
  ToolFixture f("<think>\nHm.\n</think>\n\nFour.");
  EXPECT_EQ(at(f.message(""), "content"), Json("Four."));
  EXPECT_EQ(at(f.message(""), "reasoning_content"), Json("Hm."));
  EXPECT_EQ(f.message(R"("include_reasoning":false,)").find("reasoning"), nullptr);
  EXPECT_EQ(at(f.message(R"("include_reasoning":false,)"), "content"), Json("Four."));
  for (std::string_view inside :
       {R"("separate_reasoning":false,)", R"("reasoning_format":"none",)"}) {
    EXPECT_EQ(at(f.message(inside), "content"), Json("<think>\nHm.\n</think>\n\nFour."));
  }
  const Json usage = at(f.chat("").json(), "usage");
  const Json& details = at(usage, "completion_tokens_details");
  EXPECT_EQ(at(details, "reasoning_tokens"), Json(13));  // "\nHm.\n</think>"
}

TEST(ServerTools, ATemplateMayOpenTheThought) {
  ToolFixture f("Hm.\n</think>\n\nFour.", "{{ messages[0].content }}<think>\n");
  EXPECT_EQ(at(f.message(""), "content"), Json("Four."));
  EXPECT_EQ(at(f.message(""), "reasoning"), Json("Hm."));
}

// Behind the budget comes the mark that ends thoughts; what the script holds goes on as words.
TEST(ServerTools, ABudgetEndsThoughts) {
  ToolFixture f("One, two, three.", "{{ messages[0].content }}<think>\n",
                {.takes_constraints = true});
  const auto mark =
      static_cast<int64_t>(f.model.tokenizer->encode("</think>", {.add_special = false})->size());
  for (std::string_view budget :
       {R"("thinking_token_budget":4,)", R"("thinking_budget_tokens":4,)",
        R"("thinking_budget":4,)", R"("reasoning_budget":4,)", R"("reasoning":{"max_tokens":4},)",
        R"("thinking":{"type":"enabled","budget_tokens":4},)"}) {
    const Json answer = f.chat(budget).json();
    EXPECT_EQ(at(at(choice(answer), "message"), "reasoning"), Json("One,")) << budget;
    EXPECT_EQ(at(at(choice(answer), "message"), "content"), Json("two, three.")) << budget;
    const Json& details = at(at(answer, "usage"), "completion_tokens_details");
    EXPECT_EQ(at(details, "reasoning_tokens"), Json(4 + mark));
  }
  const Json hidden = f.message(R"("reasoning":{"max_tokens":4,"exclude":true},)");
  EXPECT_EQ(hidden.find("reasoning"), nullptr);
  EXPECT_EQ(at(hidden, "content"), Json("two, three."));
  for (std::string_view none : {"", R"("thinking_token_budget":-1,)"}) {
    EXPECT_EQ(at(f.message(none), "reasoning"), Json("One, two, three.")) << none;
  }
  EXPECT_EQ(at(f.message(R"("thinking_token_budget":0,)"), "content"), Json("One, two, three."));
  const Streamed sum = add_up(f.chat(R"("reasoning":{"max_tokens":4},"stream":true,)"));
  EXPECT_EQ(sum.reasoning, "One,");
  EXPECT_EQ(sum.content, "two, three.");
}

TEST(ServerTools, ABudgetInOtherProtocols) {
  ToolFixture f("One, two, three.", "{{ messages[0].content }}<think>\n",
                {.takes_constraints = true});
  const Json message =
      f.post("/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":99,)"
                             R"("thinking":{"type":"enabled","budget_tokens":4}})")
          .json();
  EXPECT_EQ(at(at(message, "content").as_array().at(0), "thinking"), Json("One,"));
  EXPECT_EQ(at(at(message, "content").as_array().at(1), "text"), Json("two, three."));
  const Json response =
      f.post("/v1/responses", R"({"input":"hi","reasoning":{"max_tokens":4}})").json();
  const Json& output = at(response, "output");
  EXPECT_EQ(at(at(output.as_array().at(0), "content").as_array().at(0), "text"), Json("One,"));
  EXPECT_EQ(at(at(output.as_array().at(1), "content").as_array().at(0), "text"),
            Json("two, three."));
}

TEST(ServerTools, ABudgetThatCannotBeKeptIsRefused) {
  ToolFixture f("x");
  const auto refusal = [&](ServerFixture& server, std::string_view fields) {
    const TestResponse answer = server.post(
        kChatPath, R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(fields) + "}");
    EXPECT_EQ(answer.status, 400) << fields;
    return answer.error_param() + ": " + at(at(answer.json(), "error"), "message").as_string();
  };
  EXPECT_EQ(refusal(f, R"("thinking_token_budget":4)"),
            "thinking_token_budget: thinking_token_budget is not supported: this model's engine "
            "does not bound the length of thoughts");
  // Anthropic's clients send one with every request that thinks.
  EXPECT_EQ(f.post("/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":9,)"
                                   R"("thinking":{"type":"enabled","budget_tokens":4}})")
                .status,
            200);
  ServerFixture unread({.takes_constraints = true});
  EXPECT_TRUE(refusal(unread, R"("reasoning":{"max_tokens":4})")
                  .starts_with("reasoning: reasoning.max_tokens is not supported: how this model "
                               "writes its thoughts is not known"));
  EXPECT_TRUE(refusal(unread, R"("thinking":{"type":"enabled"})")
                  .starts_with("thinking: thinking.type is not supported"));
  EXPECT_TRUE(refusal(unread, R"("reasoning":{"enabled":true})")
                  .starts_with("reasoning: reasoning.enabled is not supported"));
  EXPECT_EQ(unread
                .post(kChatPath, R"({"messages":[{"role":"user","content":"hi"}],)"
                                 R"("thinking":{"type":"disabled"}})")
                .status,
            200);
  ToolFixture bounds("x", {}, {.takes_constraints = true});
  EXPECT_TRUE(refusal(bounds, R"("thinking_budget":4,"reasoning_budget":5)")
                  .starts_with("reasoning_budget: reasoning_budget and another field"));
  EXPECT_TRUE(
      refusal(bounds, R"("thinking":{"type":"on"})").starts_with("thinking: thinking.type"));
  EXPECT_TRUE(refusal(bounds, R"("reasoning":{"exclude":1})")
                  .starts_with("reasoning: reasoning.exclude must be true or false"));
}

// vLLM's: ids and words that an answer may have.
TEST(ServerTools, AnswersKeepToTheTokensThatARequestAllows) {
  ServerFixture f({.takes_constraints = true}, "xz~xz");
  const auto answer = [&](std::string_view fields) {
    return f.post(kCompletions, R"({"prompt":"hi","max_tokens":5,)" + std::string(fields) + "}");
  };
  const auto text = [&](const TestResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return at(choice(response.json()), "text").as_string();
  };
  const TokenId x = f.model.byte_token('x'), z = f.model.byte_token('z');
  EXPECT_EQ(text(answer(R"("seed":1)")), "xz~xz");
  EXPECT_EQ(text(answer(fmt::format(R"("allowed_token_ids":[{},{}])", x, z))).find('~'),
            std::string::npos);
  // A token that completes the word does not come; what the engine takes for it does.
  EXPECT_TRUE(text(answer(R"("bad_words":["z~"])")).starts_with("xz"));
  EXPECT_EQ(text(answer(R"("bad_words":["z~"],"skip_special_tokens":false)")).find("z~"),
            std::string::npos);
  EXPECT_EQ(text(answer(R"("bad_words":["x"])")).find('x'), std::string::npos);
  EXPECT_EQ(text(answer(R"("bad_words":[])")), "xz~xz");
  EXPECT_EQ(answer(R"("allowed_token_ids":[])").error_param(), "allowed_token_ids");
  EXPECT_EQ(answer(R"("allowed_token_ids":[999999])").error_param(), "allowed_token_ids");
  EXPECT_EQ(answer(R"("bad_words":[" "])").error_param(), "bad_words");
  EXPECT_EQ(answer(R"("allowed_token_ids":[1],"regex":"a+")").error_param(), "allowed_token_ids");
}

TEST(ServerTools, StrictSchemasAreRefused) {
  ToolFixture f(kCall);
  const auto chat = [&](std::string_view strict) {
    return f.chat(R"("tools":[{"type":"function","function":{"name":"f","strict":)" +
                  std::string(strict) + "}}],");
  };
  EXPECT_EQ(chat("true").error_param(), "tools");
  EXPECT_EQ(chat("false").status, 200);
}

// The thoughts of earlier turns reach templates under both names.
TEST(ServerTools, ThoughtsOfEarlierTurnsAreRead) {
  ToolFixture f("x",
                "{% for m in messages %}{{ m.reasoning }}|{{ m.reasoning_content }};{% endfor %}");
  for (std::string_view name : {"reasoning", "reasoning_content"}) {
    const TestResponse response =
        f.post("/apply-template", R"({"messages":[{"role":"assistant","content":"a",")" +
                                      std::string(name) + R"(":"b"}]})");
    EXPECT_EQ(at(response.json(), "prompt"), Json("b|b;"));
  }
}

TEST(ServerTools, ChoicesThatCallsAreReadOutOfAreCounted) {
  ToolFixture f(kCall);
  const auto count = [&](std::string_view type, std::string_view mode, std::string_view outcome) {
    const std::string line = fmt::format(
        R"(vllm:tool_call_parser_invocations_total{{engine="0",mode="{}",model_name="tiny",outcome="{}",request_type="{}"}} )",
        mode, outcome, type);
    const std::string text = f.get("/metrics").body;
    const size_t at = text.find(line);
    return at == text.npos ? -1 : std::stoi(text.substr(at + line.size()));
  };
  EXPECT_EQ(count("responses", "streaming", "no_tool_call"), 0) << "there from the start";
  f.chat(kTools);
  f.chat(std::string(kTools) + R"("stream":true,)");
  f.chat(std::string(kTools) + R"("n":2,)");
  f.chat("");  // nothing is read out of it
  EXPECT_EQ(count("chat_completions", "non_streaming", "tool_call"), 3);
  EXPECT_EQ(count("chat_completions", "streaming", "tool_call"), 1);
  EXPECT_EQ(count("chat_completions", "non_streaming", "no_tool_call"), 0);
  f.post("/v1/messages",
         R"({"max_tokens":1000,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"other",
             "input_schema":{"type":"object"}}]})");
  EXPECT_EQ(count("other", "non_streaming", "tool_call"), 1);
  ToolFixture words("Four.");
  words.chat(kTools);
  EXPECT_NE(words.get("/metrics")
                .body.find(R"(outcome="no_tool_call",request_type="chat_completions"} 1)"),
            std::string::npos);
}

TEST(ServerTools, AModelWhoseCallsAreNotReadRefuses) {
  ServerFixture f;
  const auto chat = [&](std::string_view fields) {
    return f.post(kChatPath, R"({"messages":[{"role":"user","content":"hi"}],)" +
                                 std::string(fields) + R"("max_tokens":5})");
  };
  EXPECT_EQ(chat(kTools).error_param(), "tools");
  EXPECT_EQ(chat(R"("include_reasoning":false,)").error_param(), "include_reasoning");
  EXPECT_EQ(chat(R"("parallel_tool_calls":false,)").status, 200);
}

}  // namespace
}  // namespace headrace::server_tools_test
