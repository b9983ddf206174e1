// One try of a request at one worker: connects, sends, reads the answer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "route/request_attempts.h"
#include "route/worker_answer.h"
#include "route/worker_connection.h"
#include "route/worker_table.h"
#include "server/exchange.h"

namespace headrace {

// All on the exchange's strand, where the callbacks are called, too.
class WorkerAttempt : public std::enable_shared_from_this<WorkerAttempt> {
 public:
  struct Callbacks {
    std::function<void()> on_bytes;  // more of the answer is there, or its end; then read()
    std::function<void(AttemptFailure failure, std::string why)> on_failed;  // at most once
  };
  WorkerAttempt(WorkerConnections& connections, const Clock& clock, WorkerLease lease,
                std::shared_ptr<Exchange> exchange, Callbacks callbacks);

  // `reuse`: a connection that waits will do; if it turns out to be closed, a new one is made.
  void start(std::string head, std::shared_ptr<const std::string> body, bool reuse);
  void read();
  // No more callbacks; the worker sees that it is cancelled.
  void abandon();
  // The connection may serve others. REQUIRES: answer().complete()
  void finish();

  WorkerAnswer& answer() { return answer_; }
  int worker() const { return lease_.id(); }
  bool connected() const { return connected_; }
  // Since the last byte, or the begin.
  double silent_seconds() const { return clock_.now_seconds() - heard_; }

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

}  // namespace headrace
