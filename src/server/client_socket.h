// The socket of one client, TCP or UNIX, with its bytes as they are or under TLS.
#pragma once

#include <sys/socket.h>

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <optional>
#include <string_view>

#include "server/tls_stream.h"

namespace headrace {

// All calls on the strand that is the socket's executor. One read and one write at a time.
class ClientSocket {
 public:
  using Socket = TlsStream::Socket;
  static constexpr size_t kReadBytes = TlsStream::kReadBytes;

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

  // How many bytes the client took at once: 0 where that is none, also where the socket is broken,
  // of which async_write_some() tells. REQUIRES: no write is pending
  size_t write_now(const void* bytes, size_t count) {
    if (tls_) return tls_->write_now(bytes, count);
    const ssize_t sent = ::send(socket_.native_handle(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }

  // handler(error_code, std::string_view): bytes that are there while it runs. Between reads, which
  // is most of a connection's life, it has no buffer.
  template <class Handler>
  void async_read(Handler handler) {
    if (tls_) return tls_->async_read(std::move(handler));
    socket_.async_wait(Socket::wait_read, [this, handler = std::move(handler)](
                                              boost::system::error_code error) mutable {
      if (error) return handler(error, std::string_view());
      char buffer[kReadBytes];
      const ssize_t count = ::recv(socket_.native_handle(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count > 0) return handler(error, std::string_view(buffer, static_cast<size_t>(count)));
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return async_read(std::move(handler));  // it was told of bytes that are not there
      }
      if (count == 0) error = boost::asio::error::eof;
      if (count < 0) error = {errno, boost::system::system_category()};
      handler(error, std::string_view());
    });
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
