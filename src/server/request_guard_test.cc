// What a web page can make a browser send to a server on its machine.
#include "server/request_guard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/router.h"
#include "server/server_fixture.h"

namespace headrace::request_guard_test {
namespace {

int status_of(const RequestGuard& guard, std::string method, std::vector<HttpHeader> headers,
              std::vector<std::string> origins = {}) {
  HttpRequest request;
  request.method = std::move(method);
  request.headers = std::move(headers);
  const auto refusal = guard.refuse(request, origins);
  return refusal ? refusal->status : 200;
}
int status_of_host(const RequestGuard& guard, std::string host) {
  return status_of(guard, "GET", {{"host", std::move(host)}});
}

// A name that was rebound to 127.0.0.1 still is what the browser sends.
TEST(RequestGuard, AServerOfLoopbackAnswersToItsOwnNames) {
  for (const char* address : {"127.0.0.1", "127.8.8.8", "::1", "localhost"}) {
    const RequestGuard guard(address, {});
    for (const char* own : {"localhost", "localhost:8000", "LOCALHOST.:8000", "ui.localhost:8000",
                            "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "192.168.1.5:8000", ""}) {
      EXPECT_EQ(status_of_host(guard, own), 200) << own;
    }
    for (const char* foreign :
         {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
          "evillocalhost", "[evil.example]", "127.0.0.1evil"}) {
      EXPECT_EQ(status_of_host(guard, foreign), 403) << foreign;
    }
  }
}

TEST(RequestGuard, AllowedHostsAreAddedAndAStarAllowsAll) {
  const RequestGuard named("127.0.0.1", {"LLM.example.com", "other:443"});
  EXPECT_EQ(status_of_host(named, "llm.example.com:8443"), 200);
  EXPECT_EQ(status_of_host(named, "other"), 200);
  EXPECT_EQ(status_of_host(named, "localhost"), 200);
  EXPECT_EQ(status_of_host(named, "evil.example"), 403);
  EXPECT_EQ(status_of_host(RequestGuard("127.0.0.1", {"*"}), "evil.example"), 200);
  EXPECT_EQ(status_of_host(RequestGuard("0.0.0.0", {}), "gpu-7.internal"), 200);
  EXPECT_EQ(status_of_host(RequestGuard("0.0.0.0", {"gpu-7.internal"}), "evil.example"), 403);
}

TEST(RequestGuard, PagesOfOtherSitesChangeNothing) {
  const RequestGuard guard("127.0.0.1", {});
  const auto post = [&](std::string origin, std::vector<std::string> origins = {}) {
    return status_of(guard, "POST", {{"host", "localhost:8000"}, {"origin", std::move(origin)}},
                     std::move(origins));
  };
  for (const char* other : {"https://evil.example", "http://localhost:3000", "http://localhost",
                            "https://evil.example:8000", "null", "http://"}) {
    EXPECT_EQ(post(other), 403) << other;
    EXPECT_EQ(status_of(guard, "DELETE", {{"host", "localhost"}, {"origin", other}}),
              std::string_view(other) == "http://localhost" ? 200 : 403)
        << other;
    EXPECT_EQ(post(other, {"*"}), 200) << other;
  }
  EXPECT_EQ(post("https://ui.example", {"https://ui.example"}), 200);
  EXPECT_EQ(post("https://ui.example.evil", {"https://ui.example"}), 403);
  EXPECT_EQ(post("http://localhost:8000"), 200) << "its own page";
  EXPECT_EQ(post(""), 200) << "no browser";
  EXPECT_EQ(post("vscode-webview://abc"), 200) << "a program, which a site cannot pass for";
  EXPECT_EQ(status_of(guard, "GET", {{"host", "localhost"}, {"origin", "https://evil.example"}}),
            200)
      << "without leave (CORS) the browser keeps the answer to itself";
}

// Of programs nothing is asked: curl says that a body is a form unless it is told otherwise.
TEST(RequestGuard, BodiesOfPagesSayThatTheyAreJson) {
  const auto status = [](std::string type, std::string said_by_browsers) {
    HttpRequest request;
    if (!type.empty()) request.headers = {{"content-type", std::move(type)}};
    if (!said_by_browsers.empty()) request.headers.push_back({said_by_browsers, "x"});
    const auto refusal = refuse_content_type(request);
    return refusal ? refusal->status : 200;
  };
  for (const char* name : {"origin", "sec-fetch-site", "referer", ""}) {
    for (const char* json : {"application/json", "Application/JSON; charset=utf-8",
                             "application/json ;x", "application/vnd.api+json", ""}) {
      EXPECT_EQ(status(json, name), 200) << name << " " << json;
    }
    for (const char* other :
         {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json",
          "application/jsonx", "text/plain; application/json", ";"}) {
      EXPECT_EQ(status(other, name), *name ? 415 : 200) << name << " " << other;
    }
  }
}

// --- Over HTTP -----------------------------------------------------------------------------------

std::string post_as(std::string_view path, std::string_view headers, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{}", path, headers,
                     body.size(), body);
}

// The requests that a browser sends for a page without asking the server first.
TEST(RequestGuard, ACrossSitePostSpendsNothing) {
  ServerFixture f({}, "hello");
  const std::string_view types[] = {"Content-Type: text/plain\r\n",
                                    "Content-Type: application/x-www-form-urlencoded\r\n",
                                    "Content-Type: multipart/form-data; boundary=b\r\n", ""};
  for (const Route& route : routes()) {
    if (route.method != "POST") continue;
    for (const std::string_view type : types) {
      TestClient client(f.server->port());
      client.send(post_as(
          route.path, fmt::format("Host: 127.0.0.1\r\nOrigin: https://evil.example\r\n{}", type),
          R"({"prompt":"hi"})"));
      const auto response = client.read_response();
      ASSERT_TRUE(response);
      EXPECT_EQ(response->status, 403) << route.path << " " << type;
      EXPECT_EQ(response->headers.count("access-control-allow-origin"), 0u);
    }
  }
  EXPECT_EQ(f.model.engine->submitted(), 0);
}

TEST(RequestGuard, WhatIsNoJsonIsToldWhatToSend) {
  ServerFixture f({}, "hello");
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson) continue;
    TestClient client(f.server->port());  // what is told at the head ends the connection
    client.send(fmt::format(
        "{} {} HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n"
        "Content-Length: 2\r\n\r\n{{}}",
        route.method, route.path));
    const auto response = client.read_response();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 415) << route.path;
    EXPECT_NE(response->body.find("Content-Type: application/json"), response->body.npos);
  }
  EXPECT_EQ(f.model.engine->submitted(), 0);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"hi"})").status, 200);
}

// `curl -d` as other servers' pages print it, without a header.
TEST(RequestGuard, WhatCurlSendsUnaskedIsRead) {
  ServerFixture f({}, "hello");
  for (const char* path : {"/api/generate", "/v1/completions", "/completion"}) {
    TestClient client(f.server->port());
    client.send(post_as(path,
                        "Host: x\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n"
                        "Content-Type: application/x-www-form-urlencoded\r\n",
                        R"({"model":"tiny","prompt":"hi"})"));
    const auto response = client.read_response();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 200) << path << response->body;
  }
}

TEST(RequestGuard, AReboundNameReadsNothing) {
  ServerOptions options;
  options.api_keys = {"right"};
  for (const bool with_key : {false, true}) {
    ServerFixture f({}, "hello", with_key ? options : ServerOptions());
    for (const Route& route : routes()) {
      TestClient client(f.server->port());
      client.send(
          fmt::format("{} {} HTTP/1.1\r\nHost: evil.example:8000\r\n"
                      "Origin: http://evil.example:8000\r\nContent-Length: 0\r\n\r\n",
                      route.method, route.path));
      const auto response = client.read_response();
      ASSERT_TRUE(response);
      EXPECT_EQ(response->status, 403) << route.path;
    }
  }
}

}  // namespace
}  // namespace headrace::request_guard_test
