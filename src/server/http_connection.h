// One client connection: reads requests, hands each to the handler, writes the answer, watches for
// the peer's leaving, and keeps every deadline of HttpLimits.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/body_budget.h"
#include "server/client_address.h"
#include "server/client_socket.h"
#include "server/content_encoding.h"
#include "server/error_response.h"
#include "server/exchange.h"
#include "server/http_request_reader.h"
#include "server/progress_time.h"
#include "server/server_limits.h"
#include "server/streamed_body.h"
#include "server/unsent_bytes.h"

namespace headrace {

// Whether and how far a body is read, by its request's head.
struct BodyAdmission {
  std::optional<HttpResponse> refusal;  // instead of reading it
  size_t bytes_max = 0;
  std::shared_ptr<BodyBudget::Lease> lease;  // grows with what has come; the request keeps it
};

// What connections share; outlives them all.
struct ConnectionContext {
  const HttpLimits& limits;
  // Called on the connection's strand.
  std::function<void(HttpRequest, std::shared_ptr<Exchange>)> handle;
  // Called when the head of a request with a body is there.
  std::function<BodyAdmission(const HttpRequest& head)> admit_body;
  // An answer in the server's error format.
  std::function<HttpResponse(int status, std::string_view message)> error_response;
  // Headers that every answer to this request carries.
  std::function<std::vector<HttpHeader>(const HttpRequest&)> common_headers;
  std::function<bool()> draining;    // then connections close after their answer
  std::atomic<int>& exchanges_open;  // requests handed over whose last byte has not left
  ClientAddresses& addresses;
  const TlsContext* tls = nullptr;  // of all connections; null: they have none
  bool tells_peer = false;          // in X-Forwarded-For, for servers behind this one
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = ClientSocket::Socket;

  // `on_closed` runs once when the last reference goes. The socket's executor is the strand.
  HttpConnection(Socket socket, ConnectionContext& context, std::function<void()> on_closed);
  ~HttpConnection();

  // `peer`: whose connection it is.
  void start(const IpAddress& peer);
  // Answers with an error without reading anything, then closes. Under TLS it only closes: to say
  // why would cost a handshake.
  void refuse(int status, std::string_view message);
  // For a drain: closes between two requests. Who has just connected, or is in the midst of a
  // request, has two seconds for it. Any thread.
  void close_if_idle();

 private:
  friend class ConnectionExchange;
  using Clock = std::chrono::steady_clock;
  // What all answers to a request have, and the form of its errors.
  struct Wording {
    std::vector<HttpHeader> headers;
    ErrorForm error_form = ErrorForm::kOpenAi;
    ContentCoding coding = ContentCoding::kIdentity;  // that the client takes
  };
  Wording wording_of(const HttpRequest& request) const;
  // What an exchange holds until it ends.
  struct Held {
    ClientAddresses::Place client_place;  // of a proxy's client
    std::shared_ptr<const void> answer;   // HttpResponse::held
  };

  enum class Reading { kNot, kPending, kEnded };  // ended: the peer sends no more
  enum class State { kShakingHands, kReading, kHandling, kLingering, kClosed };

  bool is_idle() const;

  // Runs a step on the strand. What it throws (memory, a library) ends this connection's request at
  // most: with a 500 where no answer has begun.
  template <class Step>
  void guarded(const Step& step);
  void on_exception(std::string_view what);

  void begin();
  void on_handshake(TlsStream::Handshake result);

  // Reading.
  void read_some();
  void on_read(boost::system::error_code error, std::string_view bytes);
  void consume_input();
  void dispatch();
  bool admit_client(const HttpRequest& request);
  void update_read_deadline();
  bool admit_body();
  bool charge_body();
  void refuse_body(HttpResponse response);
  void answer_unreadable(const HttpError& error);
  void answer_unread(HttpResponse response);

  // Answering. The serial tells exchanges of earlier requests from the present one.
  bool is_current(uint64_t serial) const { return serial == serial_ && state_ == State::kHandling; }
  void respond(uint64_t serial, HttpResponse response);
  void begin_stream(uint64_t serial, HttpResponse head);
  void write(uint64_t serial, std::string_view bytes);
  void end_stream(uint64_t serial, std::string_view last);
  void finish_answer();

  // Writing.
  void flush();
  void write_later();
  void on_written(boost::system::error_code error, size_t count);
  void after_answer();

  // Ending.
  void linger();
  void peer_gone();
  void close();
  void end_exchange();

  void call_after(uint64_t serial, double seconds, std::function<void()> task);
  void set_deadline(double seconds);
  void wait_for_deadline();
  void on_deadline();

  ClientSocket socket_;
  boost::asio::steady_timer timer_;
  ConnectionContext& context_;
  std::function<void()> on_closed_;

  IpAddress peer_;
  bool proxied_ = false;  // the peer is a trusted proxy
  Held held_;

  State state_ = State::kReading;
  Reading reading_ = Reading::kNot;
  std::string inbox_;  // bytes behind the request being answered
  std::optional<HttpRequestReader> reader_;
  HttpRequestReader::Phase read_phase_{};
  std::optional<BodyAdmission> body_;  // of the request whose body is being read
  ProgressTime time_;     // for the body that comes, or the bytes of the answer that wait
  size_t discarded_ = 0;  // while lingering

  uint64_t serial_ = 0;
  std::shared_ptr<ExchangeObserver> observer_;
  std::vector<std::shared_ptr<boost::asio::steady_timer>> timers_;  // of the exchange
  bool exchange_open_ = false;
  Wording wording_;  // of the answer under way
  bool http11_ = true;
  bool head_only_ = false;  // the request's method is HEAD
  bool keep_alive_ = false;
  StreamedBody streamed_;
  bool answer_begun_ = false;     // its first byte is in unsent_
  bool answer_complete_ = false;  // its last byte is in unsent_
  bool was_over_limit_ = false;

  UnsentBytes unsent_;
  bool write_pending_ = false;

  Clock::time_point deadline_ = Clock::time_point::max();
  bool timer_pending_ = false;
};

}  // namespace headrace
