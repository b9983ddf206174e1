// The web page as files over HTTP. What it does in a browser: tests/browser.
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

#include "server/content_encoding.h"
#include "server/page_files.h"
#include "server/server_fixture.h"

namespace headrace::page_test {
namespace {

constexpr std::string_view kBrowser =
    "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br\r\n";

TEST(PageFiles, AllOfThemAreAtMost600KbCompressed) {
  size_t total = 0;
  for (const PageFile& file : page_files()) {
    total += file.gzip.size();
    EXPECT_EQ(gunzip(file.gzip, file.plain_bytes).size(), file.plain_bytes) << file.name;
    EXPECT_EQ(gunzip(file.gzip, file.plain_bytes + 1), "") << file.name;
  }
  EXPECT_GT(page_files().size(), 5u);
  EXPECT_LE(total, 600'000u);
}

// A page that asks no other site for anything names none.
TEST(PageFiles, NameNoOtherSite) {
  for (const PageFile& file : page_files()) {
    std::string text = gunzip(file.gzip, file.plain_bytes);
    for (const std::string_view name :
         {"http://www.w3.org/", "http://127.0.0.1"}) {  // namespaces; an example
      for (size_t at; (at = text.find(name)) != text.npos;) text.erase(at, name.size());
    }
    EXPECT_EQ(text.find("http://"), text.npos) << file.name;
    EXPECT_EQ(text.find("src=\"//"), text.npos) << file.name;
  }
}

TEST(Page, IsAtTheRootForBrowsersAndOllamasClientsFindTheirs) {
  ServerFixture f;
  const TestResponse page = f.get("/", kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  const std::string policy = page.headers.at("content-security-policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
  EXPECT_EQ(policy.find("unsafe"), policy.npos);
  EXPECT_NE(policy.find("frame-ancestors 'none'"), policy.npos);
  for (const std::string_view accept : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    EXPECT_EQ(f.get("/", accept).body, "Ollama is running") << accept;
  }
  EXPECT_EQ(f.get("/", "Accept: */*\r\n").headers.at("vary"), "Accept");
}

TEST(Page, FilesHaveTheirTypesAndComeAsTheClientTakesThem) {
  ServerFixture f;
  for (const PageFile& file : page_files()) {
    const std::string path = fmt::format("/page/{}", file.name);
    const TestResponse packed = f.get(path, "Accept-Encoding: gzip\r\n");
    EXPECT_EQ(packed.status, 200) << path;
    EXPECT_EQ(packed.body, file.gzip) << path;
    EXPECT_NE(packed.headers.at("content-type"), "application/octet-stream") << path;
    const TestResponse plain = f.get(path);
    EXPECT_EQ(plain.headers.count("content-encoding"), 0u) << path;
    EXPECT_EQ(plain.body, gunzip(file.gzip, file.plain_bytes)) << path;
    EXPECT_EQ(plain.headers.at("etag"), packed.headers.at("etag")) << path;
  }
}

TEST(Page, WhatIsUnchangedIsNotSentAgain) {
  ServerFixture f;
  TestClient client(f.server->port());
  const std::string tag = client.get("/", kBrowser)->headers.at("etag");
  client.send(
      fmt::format("GET / HTTP/1.1\r\nHost: x\r\n{}If-None-Match: {}\r\n\r\n", kBrowser, tag));
  std::string head;
  while (!head.ends_with("\r\n\r\n") && head.size() < 4096) head += client.receive(1);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 304 Not Modified\r\n")) << head;
  EXPECT_NE(head.find("ETag: " + tag), head.npos) << head;
  EXPECT_EQ(head.find("Content-Length"), head.npos) << head;
  EXPECT_EQ(client.get("/ping")->status, 200);  // on the same connection
  EXPECT_EQ(client.get("/", fmt::format("{}If-None-Match: \"other\"\r\n", kBrowser))->status, 200);
}

TEST(Page, NeedsNoKeyAndNoModelWhatItAsksDoes) {
  ServerOptions options;
  options.api_keys.emplace_back("secret");
  ServerFixture f({}, "hello world", std::move(options), false);
  EXPECT_EQ(f.get("/", kBrowser).headers.at("content-encoding"), "gzip");
  EXPECT_EQ(f.get("/page/style.css").status, 200);
  EXPECT_EQ(f.get("/v1/models").status, 401);
}

TEST(Page, OtherFilesAreA404ThatNamesThem) {
  ServerFixture f;
  for (const std::string_view path : {"/page/none.js", "/page/../routes.inc", "/page/%2e%2e/x"}) {
    const TestResponse answer = f.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_NE(answer.body.find("the page has no file"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(f.get("/page/").status, 404);
  EXPECT_EQ(f.get("/index.html").status, 404);
}

TEST(Page, CanBeSwitchedOff) {
  ServerOptions options;
  options.page = false;
  ServerFixture f({}, "hello world", std::move(options));
  EXPECT_EQ(f.get("/", kBrowser).body, "Ollama is running");
  const TestResponse file = f.get("/page/style.css");
  EXPECT_EQ(file.status, 404);
  EXPECT_NE(file.body.find("--no-webui"), std::string::npos) << file.body;
}

}  // namespace
}  // namespace headrace::page_test
