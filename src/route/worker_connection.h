// A connection to a worker, and those that wait between requests.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/http_channel.h"

namespace headrace {

// Any thread; one connect, write and read at a time. Handlers run on the connection's strand: they
// hand over to their own and come back with the next call.
class WorkerConnection : public std::enable_shared_from_this<WorkerConnection> {
 public:
  using Error = boost::system::error_code;
  // It breaks when the other machine does not take bytes for `progress_seconds`; 0: in TCP's time.
  explicit WorkerConnection(boost::asio::io_context& io, double progress_seconds = 0);

  void connect(const HttpTarget& target, std::function<void(Error)> handler);
  void write(std::string head, std::shared_ptr<const std::string> body,
             std::function<void(Error)> handler);
  // Some bytes, which stay until the next read().
  void read(std::function<void(Error, std::string_view)> handler);
  // What waits ends with an error.
  void close();

  // Nothing came and it was not closed since the last answer. REQUIRES: nothing waits
  bool is_quiet();

 private:
  using Tcp = boost::asio::ip::tcp;
  void connect_to(Tcp::resolver::results_type found, std::function<void(Error)> handler);
  void set_options();

  const double progress_seconds_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  Tcp::resolver resolver_;
  Tcp::socket socket_;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  std::array<char, 16 << 10> buffer_;
};

// Any thread.
class WorkerConnections {
 public:
  WorkerConnections(boost::asio::io_context& io, const Clock& clock, double progress_seconds)
      : io_(io), clock_(clock), progress_seconds_(progress_seconds) {}

  // One that waits; nullptr: none does.
  std::shared_ptr<WorkerConnection> take(const HttpTarget& target);
  std::shared_ptr<WorkerConnection> make() {
    return std::make_shared<WorkerConnection>(io_, progress_seconds_);
  }
  void put_back(const HttpTarget& target, std::shared_ptr<WorkerConnection> connection);
  // Closes those of workers that are not among the `living`, those that the worker has closed, and
  // those that have waited for kIdleSecondsMax.
  void tidy(std::span<const std::shared_ptr<const HttpTarget>> living);
  void clear();

 private:
  static constexpr double kIdleSecondsMax = 30;
  static constexpr size_t kWaitingMax = 256;  // of one worker
  struct Waiting {
    std::shared_ptr<WorkerConnection> connection;
    double since = 0;
  };
  boost::asio::io_context& io_;
  const Clock& clock_;
  const double progress_seconds_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Waiting>> waiting_;
};

}  // namespace headrace
