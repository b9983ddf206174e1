#include "server/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <new>

#include "base/log.h"

namespace headrace {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// OpenSSL's own BIO for sockets raises SIGPIPE where the peer has left, and asks that the socket
// does not block for anybody.
int tls_socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int write_socket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      ::send(tls_socket_of(bio), bytes, static_cast<size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && would_block()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_socket(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(tls_socket_of(bio), bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (got < 0 && would_block()) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "client socket");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_write(made, write_socket);
    BIO_meth_set_read(made, read_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

// What `code` of SSL_get_error means to a connection.
error_code connection_error(int code) {
  if (code == SSL_ERROR_ZERO_RETURN) return asio::error::eof;
  if (code == SSL_ERROR_SYSCALL && errno != 0) return {errno, boost::system::system_category()};
  if (code == SSL_ERROR_SYSCALL) return asio::error::eof;
  return boost::system::errc::make_error_code(boost::system::errc::protocol_error);
}

int clamped(size_t count) { return static_cast<int>(std::min<size_t>(count, INT_MAX)); }

}  // namespace

TlsStream::TlsStream(Socket& socket, TlsCertificates certificates)
    : socket_(socket), ssl_(SSL_new(certificates.get()), SSL_free) {
  BIO* bio = ssl_ ? BIO_new(socket_method()) : nullptr;
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket.native_handle())));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // which takes it over
}

TlsStream::~TlsStream() { ERR_clear_error(); }

// Calls OpenSSL until it is done or failed, between waits for what it lacks.
template <class Attempt, class Done>
void TlsStream::attempt(Attempt call, Done done) {
  // A wait may have ended before the socket was closed, whose number may be another client's now.
  if (!socket_.is_open()) {
    asio::post(socket_.get_executor(), [done = std::move(done)] {
      done(error_code(asio::error::operation_aborted), 0, 0);
    });
    return;
  }
  ERR_clear_error();
  errno = 0;
  const int result = call(ssl_.get());
  const int code = SSL_get_error(ssl_.get(), result);
  if (code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE) {
    const error_code error = code == SSL_ERROR_NONE ? error_code() : connection_error(code);
    const unsigned long reason = ERR_peek_error();
    ERR_clear_error();
    asio::post(socket_.get_executor(), [done = std::move(done), error, reason, result] {
      done(error, reason, error ? 0 : static_cast<size_t>(result));
    });
    return;
  }
  const auto what = code == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write;
  socket_.async_wait(what, [this, call, done = std::move(done)](error_code error) mutable {
    if (error) return done(error, 0, 0);
    attempt(call, std::move(done));
  });
}

void TlsStream::async_handshake(std::function<void(Handshake)> handler) {
  attempt([](SSL* ssl) { return SSL_accept(ssl); },
          [handler = std::move(handler)](error_code error, unsigned long reason, size_t) {
            if (!error) return handler(Handshake::kDone);
            const int what = ERR_GET_REASON(reason);
            if (reason != 0) {
              const char* text = ERR_reason_error_string(reason);
              log_debug("TLS handshake: {}", text != nullptr ? text : "failed");
            }
            handler(what == SSL_R_HTTP_REQUEST ? Handshake::kPlainHttp : Handshake::kFailed);
          });
}

// What OpenSSL has read already wakes nobody.
void TlsStream::async_read(ReadHandler handler) {
  if (!socket_.is_open() || SSL_has_pending(ssl_.get()) == 1) {
    asio::post(socket_.get_executor(),
               [this, handler = std::move(handler)]() mutable { read(std::move(handler)); });
    return;
  }
  socket_.async_wait(Socket::wait_read,
                     [this, handler = std::move(handler)](error_code error) mutable {
                       if (error) return handler(error, {});
                       read(std::move(handler));
                     });
}

// Not inside async_read().
void TlsStream::read(ReadHandler handler) {
  if (!socket_.is_open()) return handler(asio::error::operation_aborted, {});
  ERR_clear_error();
  errno = 0;
  char buffer[kReadBytes];
  const int count = SSL_read(ssl_.get(), buffer, sizeof buffer);
  const int code = SSL_get_error(ssl_.get(), count);
  ERR_clear_error();
  if (code == SSL_ERROR_NONE) return handler({}, {buffer, static_cast<size_t>(count)});
  if (code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE) {
    return handler(connection_error(code), {});
  }
  const auto what = code == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write;
  socket_.async_wait(what, [this, handler = std::move(handler)](error_code error) mutable {
    if (error) return handler(error, {});
    read(std::move(handler));
  });
}

void TlsStream::async_write_some(const void* bytes, size_t count, Handler handler) {
  attempt([bytes, count](SSL* ssl) { return SSL_write(ssl, bytes, clamped(count)); },
          [handler = std::move(handler)](error_code error, unsigned long, size_t done) {
            handler(error, done);
          });
}

// Nobody asks why a write failed, so that what OpenSSL's queue of errors holds before it does not
// matter: to clear it takes half a microsecond (OpenSSL 3.0), a fifth of a token's write.
size_t TlsStream::write_now(const void* bytes, size_t count) {
  if (!socket_.is_open()) return 0;
  const int written = SSL_write(ssl_.get(), bytes, clamped(count));
  if (written > 0) return static_cast<size_t>(written);
  ERR_clear_error();
  return 0;
}

void TlsStream::shutdown_send() {
  if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace headrace
