#include "route/socket_attempt.h"

#include <utility>

namespace headrace {
namespace {

class SocketAttempt final : public WorkerAttempt,
                            public std::enable_shared_from_this<SocketAttempt> {
 public:
  SocketAttempt(WorkerConnections& connections, const Clock& clock, WorkerLease lease,
                std::shared_ptr<Exchange> exchange, Callbacks callbacks);

  void start(std::string head, std::shared_ptr<const std::string> body, bool reuse) override;
  void read() override;
  void abandon() override;
  void finish() override;
  WorkerAnswer& answer() override { return answer_; }
  int worker() const override { return lease_.id(); }
  bool connected() const override { return connected_; }
  double silent_seconds() const override { return clock_.now_seconds() - heard_; }

 private:
  using Error = WorkerConnection::Error;
  template <class Task>
  void hop(Task task);
  void connect();
  void send();
  void on_read(Error error, std::string_view bytes);
  void fail(AttemptFailure failure, std::string why);

  WorkerConnections& connections_;
  const Clock& clock_;
  WorkerLease lease_;
  const std::shared_ptr<Exchange> exchange_;
  Callbacks callbacks_;
  std::shared_ptr<WorkerConnection> connection_;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  bool reused_ = false, connected_ = false, over_ = false;
  WorkerAnswer answer_;
  double heard_ = 0;
};

SocketAttempt::SocketAttempt(WorkerConnections& connections, const Clock& clock, WorkerLease lease,
                             std::shared_ptr<Exchange> exchange, Callbacks callbacks)
    : connections_(connections),
      clock_(clock),
      lease_(std::move(lease)),
      exchange_(std::move(exchange)),
      callbacks_(std::move(callbacks)),
      heard_(clock.now_seconds()) {}

// Back from the connection's strand to the exchange's.
template <class Task>
void SocketAttempt::hop(Task task) {
  exchange_->dispatch([self = shared_from_this(), task = std::move(task)] {
    if (!self->over_) task();
  });
}

void SocketAttempt::start(std::string head, std::shared_ptr<const std::string> body, bool reuse) {
  head_ = std::move(head);
  body_ = std::move(body);
  if (reuse) connection_ = connections_.take(lease_.target());
  reused_ = connection_ != nullptr;
  if (!reused_) return connect();
  connected_ = true;
  send();
}

void SocketAttempt::connect() {
  connection_ = connections_.make();
  connection_->connect(lease_.target(), [self = shared_from_this()](Error error) {
    self->hop([self, error] {
      if (error) return self->fail(AttemptFailure::kNotSent, error.message());
      self->connected_ = true;
      self->heard_ = self->clock_.now_seconds();
      self->send();
    });
  });
}

void SocketAttempt::send() {
  connection_->write(head_, body_, [self = shared_from_this()](Error error) {
    // A worker that refuses a body answers and closes before it has read all: its answer counts.
    self->hop([self] { self->read(); });
    (void)error;
  });
}

void SocketAttempt::read() {
  connection_->read([self = shared_from_this()](Error error, std::string_view bytes) {
    self->hop([self, error, bytes] { self->on_read(error, bytes); });
  });
}

void SocketAttempt::on_read(Error error, std::string_view bytes) {
  if (error && reused_ && !answer_.has_head()) {  // it was closed while it waited
    reused_ = false;
    connected_ = false;
    return connect();
  }
  heard_ = clock_.now_seconds();
  const Status status = error ? answer_.end() : answer_.feed(bytes);
  if (!status.ok()) {
    return fail(AttemptFailure::kBroken, error ? error.message() : status.message());
  }
  callbacks_.on_bytes();
}

void SocketAttempt::fail(AttemptFailure failure, std::string why) {
  const auto self = shared_from_this();
  const auto on_failed = callbacks_.on_failed;
  abandon();
  on_failed(failure, std::move(why));
}

void SocketAttempt::abandon() {
  over_ = true;
  callbacks_ = {};
  if (connection_) connection_->close();
  lease_.release();
}

void SocketAttempt::finish() {
  if (!answer_.keeps_alive()) return abandon();
  over_ = true;
  callbacks_ = {};
  connections_.put_back(lease_.target(), std::move(connection_));
  lease_.release();
}

}  // namespace

std::shared_ptr<WorkerAttempt> SocketAttempts::make(WorkerLease lease,
                                                    std::shared_ptr<Exchange> exchange,
                                                    WorkerAttempt::Callbacks callbacks) {
  return std::make_shared<SocketAttempt>(connections_, clock_, std::move(lease),
                                         std::move(exchange), std::move(callbacks));
}

}  // namespace headrace
