// Accepts connections under the limits on their number, and runs the HTTP threads.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/http_connection.h"
#include "server/server_limits.h"
#include "server/unix_socket.h"

namespace headrace {

class HttpListener {
 public:
  // Both must outlive this.
  HttpListener(boost::asio::io_context& io, ConnectionContext& context);

  // Binds and listens; port 0 takes a free one. kInvalidArgument for a bad host, kUnavailable for a
  // port that is taken.
  Status listen(const std::string& host, uint16_t port);
  // The same on a UNIX socket whose file has these rights from the first moment. A socket that is
  // there is replaced if nobody listens on it; anything else is kUnavailable. What was made is
  // removed with the listener.
  Status listen_unix(const std::string& path, uint32_t mode);
  // The same on a TCP socket that listens already; it is closed with the listener.
  Status listen_on(int descriptor);
  uint16_t port() const { return port_; }  // 0: of a UNIX socket

  void start();                                        // begins to accept
  void stop();                                         // accepts no more. Any thread.
  void remove_socket_file() { unix_socket_.reset(); }  // after which nobody finds the way here
  void close_idle();  // connections between requests end. Any thread.
  size_t connection_count() const;

 private:
  using Connections = std::map<HttpConnection*, std::weak_ptr<HttpConnection>>;
  // Outlives the listener while connections do.
  struct Open {
    std::mutex mutex;
    Connections connections;
  };

  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  void accept();
  void on_accept(boost::system::error_code error, HttpConnection::Socket socket);
  void open_connection(HttpConnection::Socket socket);

  boost::asio::io_context& io_;
  ConnectionContext& context_;
  Acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::shared_ptr<Open> open_ = std::make_shared<Open>();
  uint16_t port_ = 0;
  std::unique_ptr<UnixSocketFile> unix_socket_;
};

}  // namespace headrace
