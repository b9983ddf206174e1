#include "server/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace headrace::http_client_test {
namespace {

// Takes one connection, reads a request and writes an answer.
class OneAnswerServer {
 public:
  enum class Then { kClose, kWait };

  OneAnswerServer(std::string answer, Then then) : answer_(std::move(answer)), then_(then) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswerServer() {
    done_ = true;
    thread_.join();
    ::close(listener_);
  }

  const std::string& url() const { return url_; }
  const std::string& request() const { return request_; }  // when the answer has come

 private:
  void serve() {
    const int file = ::accept(listener_, nullptr, nullptr);
    char buffer[4096];
    const ssize_t count = ::recv(file, buffer, sizeof buffer, 0);
    if (count > 0) request_.assign(buffer, static_cast<size_t>(count));
    for (const char c : answer_) ::send(file, &c, 1, MSG_NOSIGNAL);  // in as many pieces
    while (then_ == Then::kWait && !done_)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::close(file);
  }

  const std::string answer_;
  const Then then_;
  std::string request_;
  std::string url_;
  int listener_ = -1;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

std::unique_ptr<HttpClient> client_of(const OneAnswerServer& server, std::string key = {}) {
  auto client = HttpClient::create({.url = server.url(), .api_key = std::move(key)});
  EXPECT_TRUE(client.ok());
  return *std::move(client);
}

TEST(HttpClient, AsksAndReads) {
  const OneAnswerServer server("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
                               OneAnswerServer::Then::kClose);
  const auto reply = client_of(server, "sesame")->request("/v1/x", "{}");
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(reply->body, "no");
  EXPECT_TRUE(server.request().starts_with("POST /v1/x HTTP/1.1\r\n")) << server.request();
  EXPECT_NE(server.request().find("Authorization: Bearer sesame\r\n"), std::string::npos);
  EXPECT_TRUE(
      server.request().ends_with("Content-Length: 2\r\nContent-Type: application/json\r\n"
                                 "Authorization: Bearer sesame\r\n\r\n{}"));
}

TEST(HttpClient, HandsOnEvents) {
  const OneAnswerServer server(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "9\r\ndata: one\r\n4\r\n\n\n: \r\n7\r\nx\ndata:\r\n5\r\ntwo\r\n\r\n0\r\n\r\n",
      OneAnswerServer::Then::kWait);
  std::vector<std::string> events;
  const auto reply = client_of(server)->request(
      "/", {}, [&](std::string_view data) { events.emplace_back(data); });
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(events, (std::vector<std::string>{"one", "two"}));
}

TEST(HttpClient, ReadsToTheEndOfAConnection) {
  const OneAnswerServer server("HTTP/1.0 200 OK\r\n\r\nall of it", OneAnswerServer::Then::kClose);
  const auto reply = client_of(server)->request("/");
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->body, "all of it");
}

TEST(HttpClient, SaysThatAnAnswerWasCut) {
  const OneAnswerServer server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
                               OneAnswerServer::Then::kClose);
  const auto reply = client_of(server)->request("/");
  ASSERT_FALSE(reply.ok());
  EXPECT_NE(reply.status().message().find("it closed the connection"), std::string::npos);
}

TEST(HttpClient, IsCancelledFromAnotherThread) {
  const OneAnswerServer server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                               OneAnswerServer::Then::kWait);
  const auto client = client_of(server);
  std::atomic<bool> ended{false};
  std::thread canceller([&] {
    while (!ended) {
      client->cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto reply = client->request("/");
  ended = true;
  canceller.join();
  EXPECT_FALSE(reply.ok());
}

TEST(HttpClient, BeginsNothingThatWasGivenUp) {
  const auto client = HttpClient::create({.url = "http://127.0.0.1:1"});
  ASSERT_TRUE(client.ok());
  const std::atomic<bool> given_up{true};
  const auto reply = (*client)->request("/", {}, nullptr, &given_up);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.status().message(), "connect to 127.0.0.1:1: given up");
}

TEST(HttpClient, RefusesWhatIsNoUrlAndNoKey) {
  EXPECT_FALSE(HttpClient::create({.url = "localhost:8000"}).ok());
  EXPECT_FALSE(HttpClient::create({.url = "http://localhost:8000", .api_key = "a\r\nb"}).ok());
}

TEST(HttpClient, SaysWhereNobodyAnswers) {
  const auto client = HttpClient::create({.url = "http://127.0.0.1:1"});
  ASSERT_TRUE(client.ok());
  const auto reply = (*client)->request("/");
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.status().message(), "connect to 127.0.0.1:1: Connection refused");
}

}  // namespace
}  // namespace headrace::http_client_test
