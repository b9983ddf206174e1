// A response of OpenAI's API that is made while no client waits for it: the exchange of its answer,
// and what clients see of it meanwhile.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/event_log.h"
#include "server/exchange.h"
#include "server/post_box.h"
#include "server/response_store.h"

namespace headrace {

// The Exchange as such; all else from any thread. Its strand is a place in the post box.
class BackgroundResponse final : public Exchange,
                                 public std::enable_shared_from_this<BackgroundResponse> {
 public:
  // What is to become of it. Each is called once at most, on its strand.
  struct Keeper {
    // It is complete, and nobody can know of it yet: its last event comes behind this.
    std::function<void(const std::string& id, StoredResponse response)> complete;
    // It has ended, and its events with it; nothing: nobody was told of it.
    std::function<void(const std::string& id, std::optional<StoredResponse> response)> end;
  };

  // `box` outlives it. `events_bytes_max`: of its events; 0: nobody reads them.
  BackgroundResponse(PostBox& box, size_t events_bytes_max, Keeper keeper);

  // Before all else: its id, what it looks like in the queue, and what is kept of its request.
  void announce(const std::string& id, const Json& queued, std::string input_items,
                std::string previous);
  // At the end of its answer.
  void complete(const Json& response, std::string output_items);

  const std::string& id() const { return id_; }
  // JSON of the response as it is now.
  std::string shown() const;
  // What is kept of it so far.
  ResponseStore::Stored kept() const;
  std::shared_ptr<EventLog> events() const { return events_; }  // nullptr: it has none
  // Why its answer will never begin, for whoever is told that instead of the response; nothing: it
  // has begun, or waits.
  std::optional<HttpResponse> take_refusal();
  // Ends it, unless it has ended; then calls `done`, on its strand.
  void cancel(std::function<void()> done);

  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void write(std::string_view bytes) override;
  void end_stream(std::string_view last) override;
  bool over_unsent_limit() const override { return false; }
  void observe(std::shared_ptr<ExchangeObserver> observer) override;
  void post(std::function<void()> task) override;
  // Only queues ask for this, where somebody waits, and streams that must not be silent.
  void call_after(double, std::function<void()>) override {}

 private:
  void run_tasks();
  void end(std::string_view status, std::string_view error);

  PostBox& box_;
  const std::shared_ptr<EventLog> events_;
  const Keeper keeper_;

  std::shared_ptr<ExchangeObserver> observer_;  // on the strand
  bool ended_ = false;                          // on the strand

  std::string id_;  // fixed by announce()
  mutable std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false;  // a thread works off the tasks, or is about to
  Json shown_;
  StoredResponse kept_;
  bool complete_ = false;
  std::optional<HttpResponse> refusal_;
  bool refused_ = false;  // and its client knows
};

// Those that are under way. Any thread. An owner is whose API key it is (Caller::owner).
class BackgroundResponses {
 public:
  using Response = std::shared_ptr<BackgroundResponse>;

  void put(const std::string& owner, const std::string& id, Response response);
  Response find(const std::string& owner, const std::string& id) const;  // nullptr: there is none
  // Whether it was there.
  bool erase(const std::string& owner, const std::string& id);

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Response> responses_;
};

}  // namespace headrace
