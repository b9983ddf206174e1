#include "server/http_answer_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::http_answer_reader_test {
namespace {

struct Answer {
  std::vector<std::string> events;
  HttpAnswerReader reader{[this](std::string_view data) { events.emplace_back(data); }};
};

// The same, whether it comes at once or byte by byte.
void read_both_ways(std::string_view bytes, const std::function<void(const Answer&)>& check) {
  Answer whole, pieces;
  ASSERT_TRUE(whole.reader.feed(bytes).ok());
  check(whole);
  for (const char& byte : bytes) {
    ASSERT_FALSE(pieces.reader.complete());
    ASSERT_TRUE(pieces.reader.feed({&byte, 1}).ok());
  }
  check(pieces);
}

TEST(HttpAnswerReader, BodyByLength) {
  read_both_ways("HTTP/1.1 429 Too Many\r\nContent-Length: 5\r\nConnection: close\r\n\r\nab\ncd",
                 [](const Answer& answer) {
                   EXPECT_TRUE(answer.reader.complete());
                   EXPECT_EQ(answer.reader.status(), 429);
                   EXPECT_TRUE(answer.reader.closes());
                   EXPECT_EQ(answer.reader.body(), "ab\ncd");
                   EXPECT_TRUE(answer.events.empty());
                 });
}

TEST(HttpAnswerReader, EventsAcrossChunks) {
  read_both_ways(
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n"
      "9\r\ndata: {\"a\r\n"
      "13\r\n\":1}\n\ndata: [DONE]\n\r\n"
      "1\r\n\n\r\n0\r\n\r\n",
      [](const Answer& answer) {
        EXPECT_TRUE(answer.reader.complete());
        EXPECT_TRUE(answer.reader.is_stream());
        EXPECT_FALSE(answer.reader.closes());
        EXPECT_EQ(answer.events, (std::vector<std::string>{"{\"a\":1}", "[DONE]"}));
      });
}

TEST(HttpAnswerReader, AnEmptyBodyAndContinue) {
  read_both_ways("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
                 [](const Answer& answer) {
                   EXPECT_TRUE(answer.reader.complete());
                   EXPECT_EQ(answer.reader.status(), 204);
                 });
}

TEST(HttpAnswerReader, WithoutALengthTheBodyGoesOnToTheClose) {
  Answer answer;
  ASSERT_TRUE(answer.reader.feed("HTTP/1.1 200 OK\r\n\r\nab").ok());
  EXPECT_FALSE(answer.reader.complete());
  ASSERT_TRUE(answer.reader.feed("cd").ok());
  ASSERT_TRUE(answer.reader.end().ok());
  EXPECT_TRUE(answer.reader.closes());
  EXPECT_EQ(answer.reader.body(), "abcd");
}

TEST(HttpAnswerReader, WhatIsNoAnswerIsRefused) {
  for (const char* bytes :
       {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 abc OK\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"}) {
    Answer answer;
    EXPECT_FALSE(answer.reader.feed(bytes).ok()) << bytes;
  }
}

}  // namespace
}  // namespace headrace::http_answer_reader_test
