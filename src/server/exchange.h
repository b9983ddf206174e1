// Exchange: the answering side of one request, as handlers see it. It outlives the connection
// harmlessly: after the peer has gone, every call does nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http_message.h"

namespace headrace {

// Told about the peer, on the exchange's strand. The connection keeps it alive until the exchange
// has ended.
class ExchangeObserver {
 public:
  virtual ~ExchangeObserver() = default;
  // The peer has gone or takes no bytes; nothing that is written will arrive. At most once.
  virtual void on_peer_gone() = 0;
  // unsent_bytes() is below the limit again after it was over.
  virtual void on_writable() = 0;
};

// All but respond(), post() and call_after(): on the strand only. A handler begins on it, one that
// reads a JSON body on a text thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The whole answer. Ends the exchange. Any thread.
  virtual void respond(HttpResponse response) = 0;

  // An answer in pieces. Pieces leave in order, as soon as the peer takes them.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view bytes) = 0;
  // `last`: what is written with the end, in one piece; empty: nothing more.
  virtual void end_stream(std::string_view last) = 0;
  // Over this limit a stream should pause until on_writable().
  virtual bool over_unsent_limit() const = 0;

  virtual void observe(std::shared_ptr<ExchangeObserver> observer) = 0;

  // Runs `task` on the strand, later. Any thread.
  virtual void post(std::function<void()> task) = 0;
  // The same, at once where this thread may run what is the strand's.
  virtual void dispatch(std::function<void()> task) { post(std::move(task)); }
  // Runs `task` on the strand in `seconds`, unless the exchange has ended by then. Any thread.
  virtual void call_after(double seconds, std::function<void()> task) = 0;
};

// An exchange that changes some of what passes to another.
class ForwardingExchange : public Exchange {
 public:
  explicit ForwardingExchange(std::shared_ptr<Exchange> exchange)
      : exchange_(std::move(exchange)) {}

  void respond(HttpResponse response) override { exchange_->respond(std::move(response)); }
  void begin_stream(HttpResponse head) override { exchange_->begin_stream(std::move(head)); }
  void write(std::string_view bytes) override { exchange_->write(bytes); }
  void end_stream(std::string_view last) override { exchange_->end_stream(last); }
  bool over_unsent_limit() const override { return exchange_->over_unsent_limit(); }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    exchange_->observe(std::move(observer));
  }
  void post(std::function<void()> task) override { exchange_->post(std::move(task)); }
  void dispatch(std::function<void()> task) override { exchange_->dispatch(std::move(task)); }
  void call_after(double seconds, std::function<void()> task) override {
    exchange_->call_after(seconds, std::move(task));
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace headrace
