// TLS over one connected socket: records in and out without buffers of our own between OpenSSL and
// the socket, so that an idle connection costs little.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string_view>

#include "server/tls_context.h"

struct ssl_st;  // OpenSSL's SSL

namespace headrace {

// All calls and handlers on the strand of the socket. Handlers never run inside the call that they
// were given to; they keep the owner of stream and socket alive. At most one read and one write at
// a time.
class TlsStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Handler = std::function<void(boost::system::error_code, size_t count)>;
  using ReadHandler = std::function<void(boost::system::error_code, std::string_view bytes)>;
  static constexpr size_t kReadBytes = 16 << 10;  // at most, of one read

  enum class Handshake {
    kDone,
    kPlainHttp,  // the client has begun to speak HTTP without TLS
    kFailed,     // or the client has left
  };

  // The socket must outlive this.
  TlsStream(Socket& socket, TlsCertificates certificates);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;

  void async_handshake(std::function<void(Handshake)> handler);
  // At least one byte, which is there while the handler runs. An end of the other side is asio's
  // eof.
  void async_read(ReadHandler handler);
  void async_write_some(const void* bytes, size_t count, Handler handler);
  // How many bytes the socket took now; 0: none, or an error, of which async_write_some() tells.
  // REQUIRES: no write is pending
  size_t write_now(const void* bytes, size_t count);
  // Tells the other side that nothing more comes, if the socket takes that now.
  void shutdown_send();

 private:
  template <class Attempt, class Done>
  void attempt(Attempt call, Done done);
  void read(ReadHandler handler);

  Socket& socket_;
  const std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
};

}  // namespace headrace
