// A server whose model is an encoder, on an engine of fake vectors.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/fake_embedding_runner.h"
#include "server/server_fixture.h"

namespace headrace {

struct EncoderServer {
  explicit EncoderServer(ServerOptions options = {}, EmbeddingOptions engine_options = {},
                         std::string name = "tiny", ClassifierHead head = {}) {
    auto made = std::make_unique<FakeEmbeddingRunner>(std::move(head));
    runner = made.get();
    engine = EmbeddingEngine::create(engine_options, std::move(made));
    options.port = 0;
    options.handle_signals = false;
    options.allowed_hosts.push_back("x");
    server = Server::create(std::move(options)).value();
    CHECK(server->start().ok());
    CHECK(server
              ->set_ready({.embedder = engine.get(),
                           .tokenizer = text.tokenizer.get(),
                           .names = {std::move(name)},
                           .max_model_len = 16,
                           .facts = {.path = "tiny", .architecture = "bert"}})
              .ok());
  }
  ~EncoderServer() { runner->paused = false; }
  TestResponse post(std::string_view path, std::string_view json, std::string_view headers = "") {
    return TestClient(server->port()).post_text(path, json, headers).value();
  }
  TestResponse get(std::string_view path) { return TestClient(server->port()).get(path).value(); }
  TestResponse embed(std::string_view json) { return post("/v1/embeddings", json); }
  bool in_a_pass() {
    return eventually([&] { return !runner->passes().empty(); });
  }

  TestModel text;
  FakeEmbeddingRunner* runner;
  std::unique_ptr<EmbeddingEngine> engine;
  std::unique_ptr<Server> server;
};

}  // namespace headrace
