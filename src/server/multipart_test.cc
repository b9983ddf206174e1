#include "server/multipart.h"

#include <string>

#include <gtest/gtest.h>

#include "server/query.h"

namespace headrace::multipart_test {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=b1";

TEST(Form, PartsAreViewsOfTheBody) {
  const std::string content("line\r\n--b\r\n\0--b1x", 16);
  const std::string body =
      "--b1\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--b1\r\ncontent-type: text/plain\r\n"
      "content-disposition: form-data; filename=\"a;b=\\\"c.jsonl\"; name=file\r\n\r\n" +
      content + "\r\n--b1--\r\n";
  const auto parts = parse_form(kType, body);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ(find_part(*parts, "purpose")->content, "batch");
  EXPECT_EQ(find_part(*parts, "file")->filename, "a;b=\\\"c.jsonl");
  EXPECT_EQ(find_part(*parts, "file")->content, content);
  EXPECT_EQ(find_part(*parts, "other"), nullptr);
  EXPECT_TRUE(parse_form("Multipart/Form-Data; charset=x; Boundary=\"b1\"", body).ok());
}

TEST(Form, WhatIsRefused) {
  const std::string head = "--b1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
  const std::pair<std::string_view, std::string> cases[] = {
      {"application/json", "--b1--"},
      {"multipart/form-data", "--b1--"},
      {"multipart/form-data; boundary=", "--b1--"},
      {kType, ""},
      {kType, "--b2--"},
      {kType, "x--b1--"},
      {kType, "--b1"},
      {kType, head + "x"},
      {kType, head + "x\r\n--b1"},
      {kType, head + "x\r\n--b1\r\n"},
      {kType, head + "x\r\n" + head + "y\r\n--b1--"},
      {kType, "--b1\r\n\r\nx\r\n--b1--"},
      {kType, "--b1\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b1--"},
      {kType, "--b1\r\nno colon\r\n\r\nx\r\n--b1--"},
      {kType, "--b1\r\nX: " + std::string(2000, 'x') + "\r\n\r\nx\r\n--b1--"},
  };
  for (const auto& [type, body] : cases) {
    EXPECT_FALSE(parse_form(type, body).ok()) << type << "\n" << body;
  }
  std::string many;
  for (int i = 0; i < 17; ++i) {
    many += "--b1\r\nContent-Disposition: form-data; name=p" + std::to_string(i) + "\r\n\r\n\r\n";
  }
  EXPECT_FALSE(parse_form(kType, many + "--b1--").ok());
}

TEST(Query, ValuesAreDecoded) {
  constexpr std::string_view kQuery = "limit=20&after=file%2D1+x&empty=&flag&limit=3";
  EXPECT_EQ(query_value(kQuery, "after"), "file-1 x");
  EXPECT_EQ(query_value(kQuery, "empty"), "");
  EXPECT_EQ(query_value(kQuery, "flag"), "");
  EXPECT_EQ(query_value(kQuery, "none"), std::nullopt);
  EXPECT_EQ(query_integer(kQuery, "limit", 5, 1, 100).value(), 20);
  EXPECT_EQ(query_integer(kQuery, "none", 5, 1, 100).value(), 5);
  for (std::string_view bad :
       {"limit=0", "limit=101", "limit=x", "limit=", "limit=1x", "limit=+1"}) {
    EXPECT_EQ(query_integer(bad, "limit", 5, 1, 100).status().field(), "limit") << bad;
  }
}

}  // namespace
}  // namespace headrace::multipart_test
