#include "bench/edge_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"

namespace headrace {
namespace {

constexpr size_t kEdgeReadBytes = 64 << 10;
constexpr int kReadyMax = 512;  // sockets told of by one call

int64_t process_cpu_ns() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

Status system_error(std::string_view what) {
  return unavailable(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Counts events by the empty line behind each. What is read may be cut anywhere.
class EventCounter {
 public:
  // How many events end in `bytes`.
  int feed(std::string_view bytes) {
    int count = 0;
    for (size_t at = bytes.find('\n'); at != bytes.npos; at = bytes.find('\n', at + 1)) {
      const bool second = at == 0 ? ends_line_ : bytes[at - 1] == '\n';
      count += second;
    }
    if (!bytes.empty()) ends_line_ = bytes.back() == '\n';
    return count;
  }

 private:
  bool ends_line_ = false;
};

struct EdgeStream {
  int socket = -1;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl{nullptr, SSL_free};
  EventCounter counter;
  bool has_head = false;
  bool ended = false;
  int64_t events = 0;
};

class EdgeClient {
 public:
  EdgeClient(const EdgeClientOptions& options, EdgeBoard& board,
             std::span<const std::atomic<int64_t>> step_ns,
             std::span<std::atomic<int32_t>> delays_ns)
      : options_(options), board_(board), step_ns_(step_ns), delays_ns_(delays_ns) {}
  ~EdgeClient() {
    for (EdgeStream& stream : streams_) {
      if (stream.socket >= 0) ::close(stream.socket);
    }
    if (poll_ >= 0) ::close(poll_);
  }

  Status run() {
    while (board_.port == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    poll_ = ::epoll_create1(0);
    if (poll_ < 0) return system_error("epoll");
    if (options_.tls) {
      tls_.reset(SSL_CTX_new(TLS_client_method()));
      SSL_CTX_set_read_ahead(tls_.get(), 1);  // one call of the system a wake, as without TLS
    }
    streams_.resize(static_cast<size_t>(options_.streams));
    for (size_t i = 0; i < streams_.size(); ++i) HR_RETURN_IF_ERROR(open(i));
    while (ended_ < streams_.size()) HR_RETURN_IF_ERROR(read_ready());
    board_.client_cpu_ns = process_cpu_ns() - cpu_before_ns_;
    return ok_status();
  }

 private:
  Status open(size_t index) {
    EdgeStream& stream = streams_[index];
    stream.socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (stream.socket < 0) return system_error("socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(board_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(stream.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      return system_error("connect");
    }
    const int on = 1;
    ::setsockopt(stream.socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const std::string request = fmt::format(
        "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        options_.path, options_.body.size(), options_.body);
    if (options_.tls) {
      stream.ssl.reset(SSL_new(tls_.get()));
      SSL_set_fd(stream.ssl.get(), stream.socket);
      const int size = static_cast<int>(request.size());
      if (SSL_connect(stream.ssl.get()) != 1 ||
          SSL_write(stream.ssl.get(), request.data(), size) != size) {
        return unavailable("the server does not speak TLS");
      }
    } else if (::send(stream.socket, request.data(), request.size(), MSG_NOSIGNAL) !=
               static_cast<ssize_t>(request.size())) {
      return system_error("send");
    }
    epoll_event event{.events = EPOLLIN, .data = {.u64 = index}};
    const int flags = ::fcntl(stream.socket, F_GETFL);
    ::fcntl(stream.socket, F_SETFL, flags | O_NONBLOCK);
    if (::epoll_ctl(poll_, EPOLL_CTL_ADD, stream.socket, &event) != 0) return system_error("epoll");
    return ok_status();
  }

  Status read_ready() {
    epoll_event ready[kReadyMax];
    const int count = ::epoll_wait(poll_, ready, kReadyMax, -1);
    if (count < 0 && errno != EINTR) return system_error("epoll");
    int64_t taken = 0;
    for (int i = 0; i < count; ++i) {
      HR_RETURN_IF_ERROR(read(streams_[ready[i].data.u64], ready[i].data.u64, taken));
    }
    if (taken > 0) board_.events_taken.fetch_add(taken);
    return ok_status();
  }

  Status read(EdgeStream& stream, size_t index, int64_t& taken) {
    while (!stream.ended) {
      const ssize_t count = receive(stream);
      if (count < 0) return ok_status();  // nothing more now
      const int64_t now = clock_.now_ns();
      if (count == 0) return unavailable("the server ended a stream too soon");
      const std::string_view bytes(buffer_.data(), static_cast<size_t>(count));
      if (!stream.has_head) HR_RETURN_IF_ERROR(take_head(stream, bytes));
      const int events = stream.counter.feed(bytes);
      for (int i = 0; i < events; ++i) taken += take_event(stream, index, now);
      const bool more = stream.ssl ? SSL_has_pending(stream.ssl.get()) == 1
                                   : count == static_cast<ssize_t>(buffer_.size());
      if (!more) return ok_status();  // the socket tells of what else it has
    }
    return ok_status();
  }

  // -1: nothing is there; 0: the end.
  ssize_t receive(EdgeStream& stream) {
    if (!stream.ssl) {
      const ssize_t count = ::recv(stream.socket, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      return count < 0 && errno != EAGAIN ? 0 : count;
    }
    const int count = SSL_read(stream.ssl.get(), buffer_.data(), static_cast<int>(buffer_.size()));
    if (count > 0) return count;
    const bool wants = SSL_get_error(stream.ssl.get(), count) == SSL_ERROR_WANT_READ;
    ERR_clear_error();
    return wants ? -1 : 0;
  }

  // The head leaves alone, before any event, and is read whole.
  Status take_head(EdgeStream& stream, std::string_view bytes) {
    if (!bytes.starts_with("HTTP/1.1 200 ")) {
      return unavailable(fmt::format("the server answered: {}", bytes.substr(0, 200)));
    }
    stream.has_head = true;
    cpu_before_ns_ = process_cpu_ns();
    board_.heads.fetch_add(1);
    return ok_status();
  }

  // 1 where the event has a token.
  int take_event(EdgeStream& stream, size_t index, int64_t now) {
    const int64_t step = stream.events++ - options_.events_before;
    if (step < 0) return 0;
    if (step >= options_.steps) {  // "[DONE]"
      stream.ended = true;
      ++ended_;
      return 0;
    }
    const auto place = static_cast<size_t>(step);
    const int64_t delay = now - step_ns_[place].load(std::memory_order_relaxed);
    const int64_t bounded = std::min<int64_t>(delay, std::numeric_limits<int32_t>::max());
    delays_ns_[index * step_ns_.size() + place].store(static_cast<int32_t>(bounded),
                                                      std::memory_order_relaxed);
    if (board_.first_ns == 0) board_.first_ns = now;
    board_.last_ns.store(now, std::memory_order_relaxed);
    return 1;
  }

  const EdgeClientOptions& options_;
  EdgeBoard& board_;
  const std::span<const std::atomic<int64_t>> step_ns_;
  const std::span<std::atomic<int32_t>> delays_ns_;
  const SystemClock clock_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> tls_{nullptr, SSL_CTX_free};
  std::vector<EdgeStream> streams_;
  std::vector<char> buffer_ = std::vector<char>(kEdgeReadBytes);
  int poll_ = -1;
  size_t ended_ = 0;
  int64_t cpu_before_ns_ = 0;
};

}  // namespace

void run_edge_client(const EdgeClientOptions& options, EdgeBoard& board,
                     std::span<const std::atomic<int64_t>> step_ns,
                     std::span<std::atomic<int32_t>> delays_ns) {
  const Status status = EdgeClient(options, board, step_ns, delays_ns).run();
  if (!status.ok()) {
    const std::string message = status.message().substr(0, board.error.size() - 1);
    std::copy(message.begin(), message.end(), board.error.begin());
  }
  board.done = true;
}

}  // namespace headrace
