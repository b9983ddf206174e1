#include "server/event_frame.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/sse.h"

namespace headrace::event_frame_test {
namespace {

const std::vector<std::string> kTexts = {"",
                                         " word",
                                         "\"",
                                         "\\\"",
                                         "\n\t\x01\x7f",
                                         "é 😀",
                                         "\xff\xc3",
                                         "\"content\":\"\"",
                                         "\"text\":\"\"",
                                         "data: x\n\n",
                                         std::string("\0", 1)};

ChoiceDelta delta_of(const std::string& text, bool with_events) {
  ChoiceDelta delta;
  delta.tokens.push_back({.token = 7, .offset = 3});
  delta.generated = 1;
  if (with_events) {
    delta.events.push_back({.kind = OutputEvent::Kind::kContent, .text = text});
  } else {
    delta.text = text;
  }
  return delta;
}

AnswerHead hostile_head() {
  return {
      .id = "x-\"content\":\"\"", .created_unix_s = 17, .model = R"(m","text":"","content":"")"};
}

TEST(EventFrame, EventsAreThoseOfTheFormat) {
  const std::vector<std::function<std::unique_ptr<AnswerFormat>(AnswerHead)>> makers = {
      make_chat_format, make_completion_format};
  for (size_t kind = 0; kind < makers.size(); ++kind) {
    const auto framed = makers[kind](hostile_head());
    const auto plain = makers[kind](hostile_head());
    for (const int32_t index : {0, 2, 0, 1}) {
      for (const std::string& text : kTexts) {
        const ChoiceDelta delta = delta_of(text, kind == 0);
        std::string whole;
        for (const Json& event : plain->events(index, false, delta)) append_sse_event(whole, event);
        std::string out = "before";
        framed->append_events(out, index, false, delta, nullptr);
        EXPECT_EQ(out, "before" + whole);
        EXPECT_FALSE(whole.empty());
      }
    }
  }
}

TEST(EventFrame, WhatIsNoPlainTextIsNotFramed) {
  const Usage usage{.prompt_tokens = 3, .completion_tokens = 4};
  for (const bool chat : {true, false}) {
    AnswerHead head{.id = "a", .model = "m", .return_token_ids = true, .prompts = {{1, 2}}};
    const auto make = [&](AnswerHead of) {
      return chat ? make_chat_format(std::move(of)) : make_completion_format(std::move(of));
    };
    std::string out;
    make(head)->append_events(out, 0, false, delta_of("w", chat), nullptr);
    EXPECT_NE(out.find("\"token_ids\":[7]"), out.npos) << out;
    out.clear();
    head.return_token_ids = false;
    make(head)->append_events(out, 0, false, delta_of("w", chat), &usage);
    EXPECT_NE(out.find("\"completion_tokens\":4"), out.npos) << out;
    out.clear();
    ChoiceDelta last = delta_of("w", chat);
    last.finish = FinishReason::kLength;
    make(head)->append_events(out, 0, false, last, nullptr);
    EXPECT_NE(out.find("\"finish_reason\":\"length\""), out.npos) << out;
    out.clear();
    make(head)->append_events(out, 0, false, ChoiceDelta(), nullptr);
    EXPECT_EQ(out, "");
  }
}

}  // namespace
}  // namespace headrace::event_frame_test
