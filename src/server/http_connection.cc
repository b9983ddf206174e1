#include "server/http_connection.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <exception>

#include "base/log.h"

namespace headrace {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr size_t kInboxBytesMax = 16 << 10;   // pipelined input kept while answering
constexpr size_t kLingerBytesMax = 16 << 20;  // input thrown away so that the answer is read
constexpr size_t kWriteNowBytesMax = 32 << 10;
constexpr double kLingerSeconds = 2;
constexpr double kLateSeconds = 2;  // for a request that a drain finds on its way
constexpr std::string_view kTooManyOfOneAddress = "too many requests of this address at a time";
constexpr double kBodyBytesPerSecondMin = 64 << 10;
constexpr double kAnswerBytesPerSecondMin = 16 << 10;
}  // namespace

// Handlers keep this, not the connection's present state: a call for an earlier request is dropped.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<HttpConnection> connection, uint64_t serial)
      : connection_(std::move(connection)), serial_(serial) {}

  void respond(HttpResponse response) override {
    asio::dispatch(connection_->socket_.get_executor(), [connection = connection_, serial = serial_,
                                                         response = std::move(response)]() mutable {
      connection->guarded([&] { connection->respond(serial, std::move(response)); });
    });
  }
  void begin_stream(HttpResponse head) override {
    connection_->begin_stream(serial_, std::move(head));
  }
  void write(std::string_view bytes) override { connection_->write(serial_, bytes); }
  void end_stream(std::string_view last) override { connection_->end_stream(serial_, last); }
  bool over_unsent_limit() const override {
    return connection_->is_current(serial_) && connection_->was_over_limit_;
  }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    if (!connection_->is_current(serial_)) {  // it went before anybody looked
      return post([observer = std::move(observer)] { observer->on_peer_gone(); });
    }
    connection_->observer_ = std::move(observer);
    if (connection_->reading_ != HttpConnection::Reading::kEnded) return;
    post([connection = connection_, serial = serial_] {
      if (connection->is_current(serial) && connection->observer_) connection->peer_gone();
    });
  }
  void post(std::function<void()> task) override {
    asio::post(connection_->socket_.get_executor(),
               [connection = connection_, task = std::move(task)] { connection->guarded(task); });
  }
  void dispatch(std::function<void()> task) override {
    asio::dispatch(
        connection_->socket_.get_executor(),
        [connection = connection_, task = std::move(task)] { connection->guarded(task); });
  }
  void call_after(double seconds, std::function<void()> task) override {
    asio::dispatch(
        connection_->socket_.get_executor(),
        [connection = connection_, serial = serial_, seconds, task = std::move(task)]() mutable {
          connection->call_after(serial, seconds, std::move(task));
        });
  }

 private:
  std::shared_ptr<HttpConnection> connection_;
  const uint64_t serial_;
};

HttpConnection::HttpConnection(Socket socket, ConnectionContext& context,
                               std::function<void()> on_closed)
    : socket_(std::move(socket), context.tls ? context.tls->current() : nullptr),
      timer_(socket_.get_executor()),
      context_(context),
      on_closed_(std::move(on_closed)) {
  reader_.emplace(context_.limits);
}

HttpConnection::~HttpConnection() {
  end_exchange();
  on_closed_();
}

template <class Step>
void HttpConnection::guarded(const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    on_exception(error.what());
  }
}

void HttpConnection::on_exception(std::string_view what) {
  log_error("a connection's step threw: {}", what);
  try {
    if (state_ == State::kClosed) return;
    if (state_ == State::kLingering || answer_begun_) return peer_gone();
    answer_unread(context_.error_response(500, "internal error"));
  } catch (const std::exception& error) {
    log_error("a connection is closed: {}", error.what());
    close();
  }
}

void HttpConnection::start(const IpAddress& peer) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), peer] {
    self->peer_ = peer;
    self->proxied_ = self->context_.addresses.is_proxy(peer);
    self->guarded([&] { self->begin(); });
  });
}

void HttpConnection::begin() {
  socket_.send_small_packets();
  set_deadline(context_.draining() ? kLateSeconds : context_.limits.head_seconds_max);
  if (!socket_.has_tls()) return read_some();
  state_ = State::kShakingHands;
  socket_.async_handshake([self = shared_from_this()](TlsStream::Handshake result) {
    self->guarded([&] { self->on_handshake(result); });
  });
}

void HttpConnection::on_handshake(TlsStream::Handshake result) {
  if (state_ == State::kClosed) return;
  if (result == TlsStream::Handshake::kFailed) return close();
  state_ = State::kReading;
  if (result == TlsStream::Handshake::kPlainHttp) {
    socket_.drop_tls();
    return answer_unreadable({400, "this port speaks TLS: call it as https://"});
  }
  set_deadline(context_.limits.head_seconds_max);
  read_some();
}

void HttpConnection::refuse(int status, std::string_view message) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), status, message] {
    self->guarded([&] {
      if (self->socket_.has_tls()) return self->close();
      self->answer_unreadable({status, message});
    });
  });
}

bool HttpConnection::is_idle() const {
  return state_ == State::kReading && reader_->phase() == HttpRequestReader::Phase::kIdle;
}

void HttpConnection::close_if_idle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->is_idle() && self->serial_ > 0) return self->close();
    // Who has just connected has sent a request, or is about to.
    const bool comes = self->state_ == State::kReading || self->state_ == State::kShakingHands;
    if (comes) self->set_deadline(kLateSeconds);
  });
}

// --- Reading -------------------------------------------------------------------------------------

void HttpConnection::read_some() {
  if (reading_ != Reading::kNot || state_ == State::kClosed) return;
  if (state_ == State::kHandling && inbox_.size() >= kInboxBytesMax) return;
  reading_ = Reading::kPending;
  socket_.async_read([self = shared_from_this()](error_code error, std::string_view bytes) {
    self->reading_ = Reading::kNot;
    self->guarded([&] { self->on_read(error, bytes); });
  });
}

void HttpConnection::on_read(error_code error, std::string_view bytes) {
  if (state_ == State::kClosed) return;
  if (error && state_ != State::kHandling) return close();
  // A client that has closed and one that has closed its sending side alone look the same until it
  // is written to. What is answered at once is written. Who has asked to be told of the peer works
  // for it: a model does not go on for whoever has probably gone (as with vLLM and llama-server).
  if (error && (error != asio::error::eof || observer_)) return peer_gone();
  if (error) return void(reading_ = Reading::kEnded);
  if (state_ == State::kLingering) {
    discarded_ += bytes.size();
    return discarded_ > kLingerBytesMax ? close() : read_some();
  }
  inbox_ += bytes;
  if (state_ == State::kReading) consume_input();
  read_some();  // also while answering: it notices that the peer has gone
}

void HttpConnection::consume_input() {
  using Phase = HttpRequestReader::Phase;
  inbox_.erase(0, reader_->feed(inbox_));
  if (reader_->phase() == Phase::kBody && !body_) {  // the head is there
    if (!admit_body() || !charge_body()) return;
    if (inbox_.empty() && reader_->expects_continue()) {
      unsent_.tail() += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
    }
    inbox_.erase(0, reader_->feed(inbox_));
  }
  if (reader_->phase() == Phase::kFailed) return answer_unreadable(reader_->error());
  if (body_ && !charge_body()) return;
  if (reader_->phase() == Phase::kComplete) return dispatch();
  update_read_deadline();
}

// A head has one deadline, counted from its first byte. A body has as much time as it began with,
// and what has come of it fills that up again: neither a length that is only announced nor bytes of
// long ago give it more.
void HttpConnection::update_read_deadline() {
  using Phase = HttpRequestReader::Phase;
  const HttpLimits& limits = context_.limits;
  const Phase phase = reader_->phase();
  const bool begins = std::exchange(read_phase_, phase) != phase;
  if (begins && phase == Phase::kHead) set_deadline(limits.head_seconds_max);
  if (phase != Phase::kBody) return;
  if (begins) time_.begin(limits.body_seconds_max, Clock::now());
  time_.add(reader_->received_bytes() - time_.bytes());
  set_deadline(time_.look(kBodyBytesPerSecondMin, Clock::now()));
}

void HttpConnection::dispatch() {
  state_ = State::kHandling;
  time_.stop();
  set_deadline(-1);
  HttpRequest request = std::move(reader_->request());
  if (body_) request.body_lease = std::move(body_->lease);
  body_.reset();
  http11_ = request.http11;
  head_only_ = request.method == "HEAD";
  keep_alive_ = request.keep_alive;
  wording_ = wording_of(request);
  exchange_open_ = true;
  context_.exchanges_open.fetch_add(1);
  ++serial_;
  if (!admit_client(request)) {
    return respond(serial_, context_.error_response(429, kTooManyOfOneAddress));
  }
  if (context_.tells_peer) tell_peer(request, peer_);
  context_.handle(std::move(request),
                  std::make_shared<ConnectionExchange>(shared_from_this(), serial_));
}

HttpConnection::Wording HttpConnection::wording_of(const HttpRequest& request) const {
  return {context_.common_headers(request), error_form_of(request.path),
          choose_coding(request.header("accept-encoding"))};
}

// The clients of a proxy share its connections: their requests count instead.
bool HttpConnection::admit_client(const HttpRequest& request) {
  if (!proxied_) return true;
  held_.client_place = context_.addresses.enter(context_.addresses.client_of(peer_, request));
  return held_.client_place != nullptr;
}

// Who calls and what a route takes is asked before a byte of the body is kept. False: the answer is
// under way instead.
bool HttpConnection::admit_body() {
  body_ = context_.admit_body(reader_->request());
  if (!body_->refusal) return true;
  refuse_body(std::move(*body_->refusal));
  return false;
}

// Of what is announced, and of what has come. False: as above.
bool HttpConnection::charge_body() {
  if (reader_->body_bytes() > body_->bytes_max) {
    refuse_body(context_.error_response(413, "the body is too large"));
    return false;
  }
  if (body_->lease->grow_to(reader_->received_bytes())) return true;
  HttpResponse response = context_.error_response(
      503, "other requests' bodies take all the memory that there is for them: send it again");
  response.headers.push_back({"Retry-After", "1"});
  refuse_body(std::move(response));
  return false;
}

void HttpConnection::refuse_body(HttpResponse response) {
  wording_ = wording_of(reader_->request());
  answer_unread(std::move(response));
}

// A head that was read before says whose words to use, as of a body that announces too much.
void HttpConnection::answer_unreadable(const HttpError& error) {
  wording_ = wording_of(reader_->request());
  answer_unread(context_.error_response(error.status, error.message));
}

// What has come of the request is let go.
void HttpConnection::answer_unread(HttpResponse response) {
  if (state_ != State::kHandling) head_only_ = reader_->request().method == "HEAD";
  state_ = State::kHandling;
  time_.stop();
  reader_.emplace(context_.limits);
  body_.reset();
  http11_ = true;
  response.close = true;
  respond(++serial_, std::move(response));
}

// --- Answering -----------------------------------------------------------------------------------

void HttpConnection::respond(uint64_t serial, HttpResponse response) {
  if (!is_current(serial) || answer_complete_) return;
  answer_begun_ = true;
  keep_alive_ = keep_alive_ && !response.close && !context_.draining();
  put_in_form(wording_.error_form, response);
  encode_content(wording_.coding, response);
  response.headers.insert(response.headers.end(), wording_.headers.begin(), wording_.headers.end());
  unsent_.tail() +=
      format_response_head(response, static_cast<long>(response.body.size()), http11_, keep_alive_);
  if (!head_only_) unsent_.tail() += response.body;
  held_.answer = std::move(response.held);
  finish_answer();
}

void HttpConnection::begin_stream(uint64_t serial, HttpResponse head) {
  if (!is_current(serial) || answer_complete_) return;
  answer_begun_ = true;
  const bool sized = head.stream_bytes.has_value();
  streamed_ = {.chunked = http11_ && !head_only_ && !sized, .left = head.stream_bytes};
  keep_alive_ = keep_alive_ && (http11_ || sized) && !head.close && !context_.draining();
  head.headers.insert(head.headers.end(), wording_.headers.begin(), wording_.headers.end());
  const long length = sized ? static_cast<long>(*head.stream_bytes) : -1;
  unsent_.tail() += format_response_head(head, length, http11_, keep_alive_);
  flush();
}

void HttpConnection::write(uint64_t serial, std::string_view bytes) {
  if (!is_current(serial) || answer_complete_ || head_only_ || bytes.empty()) return;
  streamed_.append(unsent_.tail(), bytes);
  flush();
  was_over_limit_ = was_over_limit_ || unsent_.size() > context_.limits.unsent_bytes_max;
}

// The end goes with what stands before it: who has the last event has all.
void HttpConnection::end_stream(uint64_t serial, std::string_view last) {
  if (!is_current(serial) || answer_complete_) return;
  if (!head_only_) {
    streamed_.append(unsent_.tail(), last);
    if (streamed_.is_short()) return peer_gone();  // it must not look whole
    streamed_.append_end(unsent_.tail());
  }
  finish_answer();
}

void HttpConnection::finish_answer() {
  answer_complete_ = true;
  observer_.reset();
  if (unsent_.size() > 0 || write_pending_) return flush();
  // The client has taken all of it already, and this is no place to begin the next request: whoever
  // answers is not done yet.
  asio::post(socket_.get_executor(), [self = shared_from_this(), serial = serial_] {
    self->guarded([&] {
      if (self->is_current(serial) && self->answer_complete_) self->after_answer();
    });
  });
}

// --- Writing -------------------------------------------------------------------------------------

// What a stream has to say is most often taken at once: then nothing waits and nobody is woken. The
// end of an answer always goes the other way, behind which the next request begins; so does much at
// a time, as of a file, since whoever sends it would go on until all of it has left.
void HttpConnection::flush() {
  if (write_pending_ || state_ == State::kClosed) return;
  const bool streams = answer_begun_ && !answer_complete_;
  for (std::string_view next = unsent_.next(); !next.empty(); next = unsent_.next()) {
    const bool now = streams && next.size() <= kWriteNowBytesMax;
    const size_t taken = now ? socket_.write_now(next.data(), next.size()) : 0;
    unsent_.on_sent(taken);
    time_.add(taken);
    if (taken < next.size()) return write_later();
  }
  if (state_ == State::kHandling) time_.stop();
  if (streams) set_deadline(-1);  // of a write before
}

void HttpConnection::write_later() {
  write_pending_ = true;
  if (state_ == State::kHandling) {
    const auto now = Clock::now();
    if (!time_.running()) time_.begin(context_.limits.stalled_write_seconds_max, now);
    set_deadline(time_.look(kAnswerBytesPerSecondMin, now));
  }
  const std::string_view next = unsent_.next();
  socket_.async_write_some(next.data(), next.size(),
                           [self = shared_from_this()](error_code error, size_t count) {
                             self->write_pending_ = false;
                             self->guarded([&] { self->on_written(error, count); });
                           });
}

void HttpConnection::on_written(error_code error, size_t count) {
  if (state_ == State::kClosed) return;
  if (error) return peer_gone();
  unsent_.on_sent(count);
  if (state_ == State::kHandling) time_.add(count);
  if (unsent_.size() > 0) {
    flush();
  } else if (state_ == State::kHandling) {
    set_deadline(-1);
    time_.stop();
    if (answer_complete_) return after_answer();
  }
  if (was_over_limit_ && unsent_.size() <= context_.limits.unsent_bytes_max / 2) {
    was_over_limit_ = false;
    if (const auto observer = observer_) observer->on_writable();
  }
}

void HttpConnection::after_answer() {
  end_exchange();
  answer_begun_ = answer_complete_ = was_over_limit_ = false;
  wording_ = {};
  if (!keep_alive_) return linger();
  state_ = State::kReading;
  reader_.emplace(context_.limits);
  read_phase_ = HttpRequestReader::Phase::kIdle;
  set_deadline(context_.limits.idle_seconds_max);
  consume_input();
  // A drain that began while the answer was written has passed by: it was not idle yet.
  if (is_idle() && context_.draining()) return close();
  if (state_ == State::kReading && reading_ == Reading::kEnded) return close();
  read_some();
}

// --- Ending --------------------------------------------------------------------------------------

// Closing a socket that has unread input resets the connection, and the peer may lose the answer:
// end our side, then throw away what still comes for a while.
void HttpConnection::linger() {
  state_ = State::kLingering;
  socket_.shutdown_send();
  inbox_.clear();
  if (reading_ == Reading::kEnded) return close();
  set_deadline(kLingerSeconds);
  read_some();
}

void HttpConnection::peer_gone() {
  const auto observer = std::move(observer_);
  close();
  if (observer) observer->on_peer_gone();
}

void HttpConnection::close() {
  state_ = State::kClosed;
  socket_.close();
  error_code ignored;
  timer_.cancel(ignored);
  observer_.reset();
  body_.reset();
  end_exchange();
}

// A timer that is left to fire would keep the memory of this connection and of who asked for it,
// which a weak reference does, for as long as a request may wait.
void HttpConnection::end_exchange() {
  error_code ignored;
  for (const auto& timer : timers_) timer->cancel(ignored);
  timers_.clear();
  held_ = {};
  if (std::exchange(exchange_open_, false)) context_.exchanges_open.fetch_sub(1);
}

// --- Deadlines -----------------------------------------------------------------------------------

void HttpConnection::call_after(uint64_t serial, double seconds, std::function<void()> task) {
  if (!is_current(serial)) return;
  const Clock::time_point now = Clock::now();
  std::erase_if(timers_, [&](const auto& timer) { return timer->expiry() < now; });
  timers_.push_back(std::make_shared<asio::steady_timer>(
      socket_.get_executor(),
      now + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3))));
  timers_.back()->async_wait(
      [timer = timers_.back(), weak = weak_from_this(), task = std::move(task)](error_code error) {
        const auto self = weak.lock();
        if (self && !error) self->guarded(task);
      });
}

// Negative: none. The timer is not restarted for a later deadline: it looks again when it fires.
void HttpConnection::set_deadline(double seconds) {
  deadline_ = seconds < 0
                  ? Clock::time_point::max()
                  : Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  if (seconds < 0) return;
  if (timer_pending_ && timer_.expiry() <= deadline_) return;
  wait_for_deadline();
}

void HttpConnection::wait_for_deadline() {
  timer_pending_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (!self || error || self->state_ == State::kClosed) return;
    self->timer_pending_ = false;
    if (self->deadline_ == Clock::time_point::max()) return;
    if (Clock::now() < self->deadline_) return self->wait_for_deadline();
    self->guarded([&] { self->on_deadline(); });
  });
}

void HttpConnection::on_deadline() {
  using Phase = HttpRequestReader::Phase;
  if (state_ == State::kHandling) return peer_gone();  // it takes no bytes
  if (state_ == State::kShakingHands || state_ == State::kLingering ||
      reader_->phase() == Phase::kIdle)
    return close();
  answer_unreadable({408, "the request took too long to arrive"});
}

}  // namespace headrace
