// The socket of one client, TCP or UNIX, with its bytes as they are or under TLS.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <string>

#include "server/tls_stream.h"

namespace headrace {

// All calls on the strand that is the socket's executor. One read and one write at a time.
class ClientSocket {
 public:
  using Socket = TlsStream::Socket;

  // Without certificates: no TLS.
  ClientSocket(Socket socket, TlsCertificates certificates) : socket_(std::move(socket)) {
    if (certificates) tls_.emplace(socket_, std::move(certificates));
  }

  auto get_executor() { return socket_.get_executor(); }
  bool has_tls() const { return tls_.has_value(); }
  // REQUIRES: has_tls(), and no other call before the handler's
  void async_handshake(std::function<void(TlsStream::Handshake)> handler) {
    tls_->async_handshake(std::move(handler));
  }
  // What is said from now on is no TLS. REQUIRES: nothing is being read or written
  void drop_tls() { tls_.reset(); }

  void send_small_packets() {  // at once; a UNIX socket does anyway
    boost::system::error_code ignored;
    socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  }

  template <class Handler>
  void async_read_some(void* bytes, size_t count, Handler handler) {
    if (tls_) return tls_->async_read_some(bytes, count, std::move(handler));
    socket_.async_read_some(boost::asio::buffer(bytes, count), std::move(handler));
  }
  template <class Handler>
  void async_write_some(const void* bytes, size_t count, Handler handler) {
    if (tls_) return tls_->async_write_some(bytes, count, std::move(handler));
    socket_.async_write_some(boost::asio::buffer(bytes, count), std::move(handler));
  }

  // Tells the other side that nothing more comes.
  void shutdown_send() {
    if (tls_) tls_->shutdown_send();
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
  std::optional<TlsStream> tls_;
};

}  // namespace headrace
