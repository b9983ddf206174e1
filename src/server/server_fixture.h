// What tests of the whole server share: a running server on a fake engine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "server/client_fixture.h"
#include "server/model_fixture.h"
#include "server/server.h"

namespace headrace {

inline bool eventually(const std::function<bool()>& condition, double seconds = 5) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// A server that is ready (or not) on a free port, with its model.
struct ServerFixture {
  explicit ServerFixture(FakeEngineOptions engine = {}, std::string_view script = "hello world",
                         ServerOptions options = {}, bool ready = true)
      : model(std::move(engine), script) {
    options.port = 0;
    options.handle_signals = false;
    options.allowed_hosts.push_back("x");  // what the client of the tests calls it
    auto created = Server::create(std::move(options));
    CHECK(created.ok());
    server = std::move(*created);
    CHECK(server->start().ok());
    if (ready) CHECK(server->set_ready(model.served()).ok());
  }
  TestResponse get(std::string_view path, std::string_view headers = "") {
    return TestClient(server->port()).get(path, headers).value();
  }
  TestResponse post(std::string_view path, std::string_view json, std::string_view headers = "") {
    return TestClient(server->port()).post_text(path, json, headers).value();
  }
  TestModel model;
  std::unique_ptr<Server> server;
};

inline constexpr std::string_view kChat =
    R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":50})";
inline constexpr std::string_view kChatStream =
    R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true})";
inline constexpr std::string_view kCompletions = "/v1/completions";
inline constexpr std::string_view kChatPath = "/v1/chat/completions";

inline const Json& at(const Json& json, std::string_view key) {
  const Json* member = json.find(key);
  CHECK_MSG(member, "no such member");
  return *member;
}
inline const Json& choice(const Json& json, size_t index = 0) {
  return at(json, "choices").as_array().at(index);
}

}  // namespace headrace
