#include "route/worker_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <set>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/write.hpp>

namespace headrace {

namespace asio = boost::asio;

namespace {
constexpr int kKeepAliveSeconds = 5;

std::string key_of(const HttpTarget& target) { return target.host + ' ' + target.port; }
}  // namespace

WorkerConnection::WorkerConnection(asio::io_context& io, double progress_seconds)
    : progress_seconds_(progress_seconds),
      strand_(asio::make_strand(io)),
      resolver_(strand_),
      socket_(strand_) {}

void WorkerConnection::connect(const HttpTarget& target, std::function<void(Error)> handler) {
  Error error;
  const auto address = asio::ip::make_address(target.host, error);
  if (!error) {
    const Tcp::endpoint endpoint(address, static_cast<uint16_t>(std::stoi(target.port)));
    return asio::dispatch(strand_, [self = shared_from_this(), endpoint,
                                    handler = std::move(handler)]() mutable {
      self->connect_to(Tcp::resolver::results_type::create(endpoint, "", ""), std::move(handler));
    });
  }
  asio::dispatch(strand_, [self = shared_from_this(), host = target.host, port = target.port,
                           handler = std::move(handler)]() mutable {
    self->resolver_.async_resolve(host, port,
                                  [self, handler = std::move(handler)](
                                      Error failed, Tcp::resolver::results_type found) mutable {
                                    if (failed) return handler(failed);
                                    self->connect_to(std::move(found), std::move(handler));
                                  });
  });
}

void WorkerConnection::connect_to(Tcp::resolver::results_type found,
                                  std::function<void(Error)> handler) {
  asio::async_connect(
      socket_, found,
      [self = shared_from_this(), handler = std::move(handler)](Error error, const Tcp::endpoint&) {
        if (!error) self->set_options();
        handler(error);
      });
}

// An answer may be long in coming; that the machine is there is asked beside it.
void WorkerConnection::set_options() {
  Error ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);
  if (progress_seconds_ <= 0) return;
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket_.native_handle(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(progress_seconds_ * 1e3));
}

void WorkerConnection::write(std::string head, std::shared_ptr<const std::string> body,
                             std::function<void(Error)> handler) {
  asio::dispatch(strand_, [self = shared_from_this(), head = std::move(head),
                           body = std::move(body), handler = std::move(handler)]() mutable {
    self->head_ = std::move(head);
    self->body_ = std::move(body);
    const std::array<asio::const_buffer, 2> parts = {
        asio::buffer(self->head_), self->body_ ? asio::buffer(*self->body_) : asio::const_buffer()};
    asio::async_write(self->socket_, parts,
                      [self, handler = std::move(handler)](Error error, size_t) {
                        self->body_.reset();
                        handler(error);
                      });
  });
}

void WorkerConnection::read(std::function<void(Error, std::string_view)> handler) {
  asio::dispatch(strand_, [self = shared_from_this(), handler = std::move(handler)]() mutable {
    self->socket_.async_read_some(
        asio::buffer(self->buffer_), [self, handler = std::move(handler)](Error error, size_t n) {
          handler(error, std::string_view(self->buffer_.data(), error ? 0 : n));
        });
  });
}

void WorkerConnection::close() {
  asio::dispatch(strand_, [self = shared_from_this()] {
    Error ignored;
    self->resolver_.cancel();
    self->socket_.close(ignored);
  });
}

bool WorkerConnection::is_quiet() {
  char byte = 0;
  const ssize_t there = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return there < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

std::shared_ptr<WorkerConnection> WorkerConnections::take(const HttpTarget& target) {
  std::lock_guard lock(mutex_);
  auto& waiting = waiting_[key_of(target)];
  while (!waiting.empty()) {
    const std::shared_ptr<WorkerConnection> last = std::move(waiting.back().connection);
    waiting.pop_back();
    if (last->is_quiet()) return last;
  }
  return nullptr;
}

void WorkerConnections::put_back(const HttpTarget& target,
                                 std::shared_ptr<WorkerConnection> connection) {
  std::lock_guard lock(mutex_);
  auto& waiting = waiting_[key_of(target)];
  if (waiting.size() < kWaitingMax) {
    waiting.push_back({.connection = std::move(connection), .since = clock_.now_seconds()});
  }
}

void WorkerConnections::tidy(std::span<const std::shared_ptr<const HttpTarget>> living) {
  std::set<std::string> kept;
  for (const auto& target : living) kept.insert(key_of(*target));
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const auto& each) { return !kept.contains(each.first); });
  const double oldest = clock_.now_seconds() - kIdleSecondsMax;
  for (auto& [key, waiting] : waiting_) {
    std::erase_if(waiting, [&](const Waiting& each) {
      return each.since < oldest || !each.connection->is_quiet();
    });
  }
}

void WorkerConnections::clear() {
  std::lock_guard lock(mutex_);
  waiting_.clear();
}

}  // namespace headrace
