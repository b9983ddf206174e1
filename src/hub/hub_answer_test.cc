#include "hub/hub_answer.h"

#include <gtest/gtest.h>

namespace headrace::hub_answer_test {
namespace {

TEST(HubAnswers, HeadersOfTheLastAnswerAndOfAll) {
  HubAnswer answer;
  answer.add_header("X-Linked-Etag: \"abc\"\r\n");
  answer.add_header("Content-Length: 7\r\n");
  answer.begin();
  answer.add_header("content-range:bytes 5-9/20 \r\n");
  answer.add_header("no header at all\r\n");
  EXPECT_EQ(answer.first_header("x-linked-etag"), "\"abc\"");
  EXPECT_EQ(answer.header("x-linked-etag"), "");
  EXPECT_FALSE(answer.content_length());
  EXPECT_EQ(answer.content_range(), std::pair(int64_t{5}, int64_t{20}));
}

TEST(HubAnswers, NumbersThatAreNone) {
  for (const char* line : {"content-range: bytes 5-9/*", "content-range: bytes */20",
                           "content-range: items 5-9/20", "content-range: bytes 5/9-20"}) {
    HubAnswer answer;
    answer.add_header(line);
    EXPECT_FALSE(answer.content_range()) << line;
  }
  HubAnswer answer;
  answer.add_header("retry-after: Fri, 31 Dec 1999 23:59:59 GMT");
  answer.add_header("content-length: -5");
  EXPECT_FALSE(answer.retry_after());
  EXPECT_FALSE(answer.content_length());
}

TEST(HubAnswers, RedirectsLeadWhereHttpGoes) {
  const auto target = [](const std::string& to, const std::string& from = "http://a:1/x/y?z=/q") {
    return redirect_target(from, to);
  };
  EXPECT_EQ(target("http://b/c"), "http://b/c");
  EXPECT_EQ(target("/c"), "http://a:1/c");
  EXPECT_EQ(target("c"), "http://a:1/x/c");
  EXPECT_EQ(target("//b/c"), "http://b/c");
  EXPECT_EQ(target("c", "http://a:1"), "http://a:1/c");
  for (const char* nowhere :
       {"", "file:///etc/passwd", "ftp://b/c", "gopher://b", "/a b", "/a\r\nX: y"}) {
    EXPECT_EQ(target(nowhere), "") << nowhere;
  }
  EXPECT_EQ(target("http://b/c", "https://a/x"), "");  // never back to plain HTTP
  EXPECT_EQ(target("https://b/c", "https://a/x"), "https://b/c");
}

TEST(HubAnswers, ATokenBelongsToAnOrigin) {
  EXPECT_EQ(origin_of_url("https://host:80/x?y"), "https://host:80");
  EXPECT_EQ(origin_of_url("https://host"), "https://host");
  EXPECT_NE(origin_of_url("http://host/"), origin_of_url("https://host/"));
  EXPECT_NE(origin_of_url("http://host:1/"), origin_of_url("http://host:2/"));
}

}  // namespace
}  // namespace headrace::hub_answer_test
