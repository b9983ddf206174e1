#include "bench/load_client.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "server/http_answer_reader.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kErrorBytesMax = 300;  // of a refusal that is shown

Result<tcp::endpoint> endpoint_of(const LoadClientOptions& options) {
  error_code error;
  const auto address =
      asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) {
    return invalid_argument(
        fmt::format("--host {}: must be an IP address such as 127.0.0.1", options.host), "host");
  }
  return tcp::endpoint(address, options.port);
}

std::string request_text(const LoadClientOptions& options, std::string_view path,
                         const LoadItem& item) {
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\n", item.body.empty() ? "GET" : "POST", path,
                  options.host, options.port);
  if (!options.api_key.empty()) text += "Authorization: Bearer " + options.api_key + "\r\n";
  for (const auto& [name, value] : item.headers) text += name + ": " + value + "\r\n";
  if (!item.body.empty()) {
    text +=
        fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", item.body.size());
  }
  return text + "\r\n" + item.body;
}

int64_t usage_of(const Json& json, std::string_view name) {
  const Json* usage = json.find("usage");
  const Json* count = usage ? usage->find(name) : nullptr;
  return count && count->is_int() ? count->as_int() : 0;
}

void read_usage(std::string_view json_text, LoadOutcome& outcome) {
  const auto json = parse_json(json_text);
  if (!json.ok()) return;
  outcome.prompt_tokens = usage_of(*json, "prompt_tokens");
  outcome.output_tokens = usage_of(*json, "completion_tokens");
}

// What one answer brings, as its events come.
class AnswerRecord {
 public:
  AnswerRecord(LoadOutcome& outcome, const SystemClock& clock, double start)
      : outcome_(outcome), clock_(clock), start_(start) {
    outcome_.sent = now();
  }

  double now() const { return clock_.now_seconds() - start_; }

  void on_event(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
    } else if (data.find("\"choices\":[]") != data.npos) {  // the one with the usage
      read_usage(data, outcome_);
    } else if (data.find("\"error\":") != data.npos) {
      outcome_.error = std::string(data.substr(0, kErrorBytesMax));
    } else {
      on_text();
    }
  }

  void on_end(const HttpAnswerReader& answer) {
    outcome_.ended = now();
    outcome_.status = answer.status();
    outcome_.retry_after = answer.retry_after_seconds();
    if (answer.status() != 200) {
      outcome_.error = fmt::format("{}: {}", answer.status(),
                                   std::string_view(answer.body()).substr(0, kErrorBytesMax));
    } else if (!answer.is_stream()) {
      outcome_.first_token = outcome_.last_token = outcome_.ended;
      read_usage(answer.body(), outcome_);
    } else if (!done_ && outcome_.error.empty()) {
      outcome_.error = "the stream ended before [DONE]";
    }
  }

  void on_failure(std::string_view why) {
    outcome_.ended = now();
    outcome_.error = std::string(why);
  }

 private:
  void on_text() {
    const double time = now();
    if (outcome_.first_token < 0) {
      outcome_.first_token = time;
    } else {
      outcome_.gaps.push_back(static_cast<float>(time - outcome_.last_token));
    }
    outcome_.last_token = time;
  }

  LoadOutcome& outcome_;
  const SystemClock& clock_;
  const double start_;
  bool done_ = false;
};

class LoadThread;

// A connection that is used for one request after the other.
class LoadConnection : public std::enable_shared_from_this<LoadConnection> {
 public:
  LoadConnection(LoadThread& owner, asio::io_context& io) : owner_(owner), socket_(io) {}

  // Sends and reads; tells the owner when it has ended. REQUIRES: nothing is under way
  void start(std::string text, LoadOutcome& outcome);
  // Ends what is under way as failed.
  void give_up(std::string_view why);

 private:
  void connect();
  void send();
  void read();
  void on_read(error_code error, size_t count);
  void finish();
  void fail(std::string_view why);
  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

  LoadThread& owner_;
  tcp::socket socket_;
  std::string text_;
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
  std::optional<AnswerRecord> record_;  // of the request under way
  std::optional<HttpAnswerReader> answer_;
  bool reused_ = false;  // the peer may have closed it meanwhile: then once more
};

// Every `stride`-th item, on one thread; nothing is shared with the other threads.
class LoadThread {
 public:
  LoadThread(const LoadClientOptions& options, tcp::endpoint endpoint,
             std::span<const LoadItem> items, std::span<LoadOutcome> outcomes, size_t first,
             size_t stride, double start)
      : options_(options),
        endpoint_(endpoint),
        items_(items),
        outcomes_(outcomes),
        stride_(stride),
        start_(start),
        next_(first),
        timer_(io_),
        deadline_(io_) {
    const auto bound = static_cast<size_t>(options.concurrency_max);
    slots_ = bound == 0 ? items.size() : bound / stride + (first < bound % stride ? 1 : 0);
  }

  void run() {
    if (slots_ == 0) next_ = items_.size();
    deadline_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(
        std::chrono::duration<double>(options_.seconds_max)));
    deadline_.async_wait([this](error_code error) {
      if (!error) give_up();
    });
    send_due();
    io_.run();
  }

  void ended(std::shared_ptr<LoadConnection> connection) {
    under_way_.erase(std::find(under_way_.begin(), under_way_.end(), connection));
    free_.push_back(std::move(connection));
    if (options_.ended != nullptr) options_.ended->fetch_add(1, std::memory_order_relaxed);
    send_due();
  }

  const tcp::endpoint& endpoint() const { return endpoint_; }
  const SystemClock& clock() const { return clock_; }
  double start() const { return start_; }

 private:
  void send_due() {
    const double now = clock_.now_seconds() - start_;
    while (next_ < items_.size() && under_way_.size() < slots_ && items_[next_].at_seconds <= now) {
      send_next();
    }
    if (next_ < items_.size()) {
      if (under_way_.size() < slots_) wait_until(items_[next_].at_seconds - now);
    } else if (under_way_.empty()) {
      deadline_.cancel();
      free_.clear();
    }
  }

  void send_next() {
    if (free_.empty()) free_.push_back(std::make_shared<LoadConnection>(*this, io_));
    under_way_.push_back(std::move(free_.back()));
    free_.pop_back();
    LoadOutcome& outcome = outcomes_[next_];
    std::string text = request_text(options_, options_.path, items_[next_]);
    next_ += stride_;
    under_way_.back()->start(std::move(text), outcome);
  }

  void wait_until(double seconds) {
    timer_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(
        std::chrono::duration<double>(seconds)));
    timer_.async_wait([this](error_code error) {
      if (!error) send_due();
    });
  }

  void give_up() {
    for (; next_ < items_.size(); next_ += stride_) outcomes_[next_].error = "never sent";
    next_ = items_.size();
    const auto left = under_way_;
    for (const auto& connection : left) connection->give_up("not answered in time");
  }

  const LoadClientOptions& options_;
  const tcp::endpoint endpoint_;
  const std::span<const LoadItem> items_;
  const std::span<LoadOutcome> outcomes_;
  const size_t stride_;
  const double start_;
  size_t slots_ = 0;
  size_t next_;
  const SystemClock clock_;
  asio::io_context io_{1};
  asio::steady_timer timer_, deadline_;
  std::vector<std::shared_ptr<LoadConnection>> under_way_, free_;
};

void LoadConnection::start(std::string text, LoadOutcome& outcome) {
  text_ = std::move(text);
  record_.emplace(outcome, owner_.clock(), owner_.start());
  answer_.emplace([this](std::string_view data) { record_->on_event(data); });
  reused_ = socket_.is_open();
  if (reused_) {
    send();
  } else {
    connect();
  }
}

void LoadConnection::connect() {
  socket_.async_connect(owner_.endpoint(), [self = shared_from_this()](error_code error) {
    if (error) return self->fail("cannot connect: " + error.message());
    error_code ignored;
    self->socket_.set_option(tcp::no_delay(true), ignored);
    self->send();
  });
}

void LoadConnection::send() {
  asio::async_write(socket_, asio::buffer(text_),
                    [self = shared_from_this()](error_code error, size_t) {
                      if (error) return self->on_read(error, 0);
                      self->read();
                    });
}

void LoadConnection::read() {
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](error_code error, size_t count) { self->on_read(error, count); });
}

void LoadConnection::on_read(error_code error, size_t count) {
  if (!record_) return;  // given up
  if (error) {
    close();
    if (error == asio::error::eof && answer_->end().ok()) return finish();
    if (std::exchange(reused_, false) && answer_->status() == 0) return connect();
    return fail("the connection broke: " + error.message());
  }
  reused_ = false;
  const Status status = answer_->feed({buffer_.data(), count});
  if (!status.ok()) return fail(status.message());
  if (!answer_->complete()) return read();
  finish();
}

void LoadConnection::finish() {
  record_->on_end(*answer_);
  record_.reset();
  if (answer_->closes()) close();
  owner_.ended(shared_from_this());
}

void LoadConnection::give_up(std::string_view why) {
  if (record_) fail(why);
}

void LoadConnection::fail(std::string_view why) {
  record_->on_failure(why);
  record_.reset();
  close();
  owner_.ended(shared_from_this());
}

}  // namespace

Result<std::vector<LoadOutcome>> run_load(const LoadClientOptions& options,
                                          std::span<const LoadItem> items) {
  HR_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, endpoint_of(options));
  std::vector<LoadOutcome> outcomes(items.size());
  // A bound on concurrency is shared out: no more threads than slots.
  const int slots = options.concurrency_max > 0 ? options.concurrency_max : options.threads;
  const auto count = static_cast<size_t>(std::max(1, std::min(options.threads, slots)));
  const double start = SystemClock().now_seconds();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back(
        [&, i] { LoadThread(options, endpoint, items, outcomes, i, count, start).run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

Result<HttpAnswer> fetch(const LoadClientOptions& options, const std::string& path,
                         const std::string& body) {
  HR_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, endpoint_of(options));
  asio::io_context io;
  tcp::socket socket(io);
  error_code error;
  socket.connect(endpoint, error);
  const std::string text = request_text(options, path, {.body = body});
  if (!error) asio::write(socket, asio::buffer(text), error);
  std::string events;  // of an event stream
  HttpAnswerReader answer([&](std::string_view data) { (events += data) += '\n'; });
  std::vector<char> buffer(kReadBytes);
  while (!error && !answer.complete()) {
    const size_t count = socket.read_some(asio::buffer(buffer), error);
    HR_RETURN_IF_ERROR(answer.feed({buffer.data(), count}));
  }
  const bool ended = answer.complete() || (error == asio::error::eof && answer.end().ok());
  if (!ended) {
    return unavailable(
        fmt::format("{}:{} does not answer: {}", options.host, options.port, error.message()));
  }
  return HttpAnswer{answer.status(), answer.is_stream() ? events : answer.body()};
}

}  // namespace headrace
