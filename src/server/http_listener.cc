#include "server/http_listener.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <cstring>
#include <exception>
#include <optional>

#include "base/log.h"

namespace headrace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
// Out of file descriptors or connections: look again so often.
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

// REQUIRES: its family is an IP's
tcp::endpoint tcp_endpoint(const asio::generic::stream_protocol::endpoint& endpoint) {
  tcp::endpoint result;
  std::memcpy(result.data(), endpoint.data(), std::min(endpoint.size(), result.capacity()));
  return result;
}
}  // namespace

HttpListener::HttpListener(asio::io_context& io, ConnectionContext& context)
    : io_(io),
      context_(context),
      acceptor_(asio::make_strand(io)),
      pause_(acceptor_.get_executor()) {}

Status HttpListener::listen(const std::string& host, uint16_t port) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error)
    return invalid_argument(
        "--host " + host + ": must be an IP address such as 127.0.0.1 or 0.0.0.0", "host");
  const tcp::endpoint endpoint(address, port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(Acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    const bool taken = error == boost::system::errc::address_in_use;
    return unavailable("cannot listen on " + host + " port " + std::to_string(port) + ": " +
                           error.message() + (taken ? ": name another with --port" : ""),
                       "port");
  }
  port_ = tcp_endpoint(acceptor_.local_endpoint(error)).port();
  return ok_status();
}

Status HttpListener::listen_unix(const std::string& path, uint32_t mode) {
  HR_ASSIGN_OR_RETURN(BoundUnixSocket bound, listen_on_unix_socket(path, mode));
  error_code error;
  acceptor_.assign(asio::local::stream_protocol(), bound.descriptor, error);
  if (error) return unavailable("cannot listen on " + path + ": " + error.message(), "uds");
  unix_socket_ = std::move(bound.file);
  return ok_status();
}

Status HttpListener::listen_on(int descriptor) {
  error_code error;
  acceptor_.assign(tcp::v4(), descriptor, error);  // which of the two IPs it is, accept() tells
  if (!error) acceptor_.non_blocking(true, error);
  if (!error) port_ = tcp_endpoint(acceptor_.local_endpoint(error)).port();
  if (!error) return ok_status();
  return unavailable("cannot listen on the socket that was handed over: " + error.message());
}

void HttpListener::start() {
  asio::post(acceptor_.get_executor(), [this] { accept(); });
}

void HttpListener::stop() {
  asio::post(acceptor_.get_executor(), [this] {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel(ignored);
  });
}

void HttpListener::close_idle() {
  std::vector<std::shared_ptr<HttpConnection>> alive;  // released outside the lock
  {
    std::lock_guard lock(open_->mutex);
    for (const auto& [_, weak] : open_->connections) {
      if (auto connection = weak.lock()) alive.push_back(std::move(connection));
    }
  }
  for (const auto& connection : alive) connection->close_if_idle();
}

size_t HttpListener::connection_count() const {
  std::lock_guard lock(open_->mutex);
  return open_->connections.size();
}

void HttpListener::accept() {
  if (!acceptor_.is_open()) return;
  if (connection_count() >= static_cast<size_t>(context_.limits.connections_max)) {
    return on_accept(asio::error::no_descriptors, HttpConnection::Socket(io_));
  }
  acceptor_.async_accept(asio::make_strand(io_),
                         [this](error_code error, HttpConnection::Socket socket) {
                           on_accept(error, std::move(socket));
                         });
}

void HttpListener::on_accept(error_code error, HttpConnection::Socket socket) {
  if (error == asio::error::operation_aborted) return;
  try {
    if (!error) open_connection(std::move(socket));
  } catch (const std::exception& thrown) {  // accepting goes on
    log_error("a connection was not opened: {}", thrown.what());
  }
  const bool exhausted = error == asio::error::no_descriptors || error == asio::error::no_memory ||
                         error == asio::error::no_buffer_space || error.value() == ENFILE;
  if (!exhausted) return accept();
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([this](error_code wait_error) {
    if (!wait_error) accept();
  });
}

void HttpListener::open_connection(HttpConnection::Socket socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return;  // gone already
  // Who may open the socket's file has no address: of those there is the bound of all connections.
  const bool has_address = endpoint.protocol().family() != AF_UNIX;
  const IpAddress peer = has_address ? tcp_endpoint(endpoint).address() : IpAddress();
  ClientAddresses& addresses = context_.addresses;
  const bool counts = has_address && !addresses.is_proxy(peer);  // else each request does
  auto place = counts ? addresses.enter(peer) : nullptr;
  const bool too_many = counts && place == nullptr;
  // The deleter's last act removes the entry, whatever thread that is on.
  auto key = std::make_shared<HttpConnection*>(nullptr);
  auto on_closed = [open = open_, place = std::move(place), key] {
    std::lock_guard lock(open->mutex);
    open->connections.erase(*key);
  };
  auto connection = std::make_shared<HttpConnection>(std::move(socket), context_, on_closed);
  *key = connection.get();
  {
    std::lock_guard lock(open_->mutex);
    open_->connections.emplace(connection.get(), connection);
  }
  if (too_many) {
    connection->refuse(429, "too many connections from this address");
  } else {
    connection->start(peer);
  }
}

}  // namespace headrace
