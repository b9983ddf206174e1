// One request for embeddings under way: texts in the embedding engine on one side, an exchange on
// the other. A client that leaves cancels it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/embedding_engine.h"
#include "server/answer_budget.h"
#include "server/embedding_format.h"
#include "server/exchange.h"
#include "server/key_quota.h"
#include "server/server_state.h"

namespace headrace {

// All that an answer needs.
struct EmbeddingPlan {
  ModelLease model;  // that answers
  std::vector<EmbeddingText> texts;
  int32_t dimensions = 0;  // of the answer's vectors
  EmbeddingAnswer answer;
  std::function<std::string(const EmbeddingRows&, const EmbeddingAnswer&)> write;
  std::unique_ptr<KeyQuota::Lease> lease;  // nullptr: no quota
  std::shared_ptr<const AnswerBudget::Lease> vectors;
  std::vector<HttpHeader> headers;  // of the answer
};

// Threads: the engine's only hands vectors to a text thread, which writes the answer; the rest is
// the exchange's strand. The connection keeps the session alive, the engine never does.
class EmbeddingSession : public ExchangeObserver,
                         public std::enable_shared_from_this<EmbeddingSession> {
 public:
  // On the exchange's strand. Answers for good or bad, sooner or later.
  static void start(ServerState& state, EmbeddingPlan plan, std::shared_ptr<Exchange> exchange);
  ~EmbeddingSession() override;  // cancels what is not answered

  void on_peer_gone() override;
  void on_writable() override {}

 private:
  struct Answering;  // what the engine's sink holds
  EmbeddingSession(ServerState& state, std::shared_ptr<Answering> answering)
      : state_(state), answering_(std::move(answering)) {}
  void watch_queue(double seconds);

  ServerState& state_;
  const std::shared_ptr<Answering> answering_;
  RequestId request_;
};

}  // namespace headrace
