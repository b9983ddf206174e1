// One try of a request at one worker: connects, sends, reads the answer. Over sockets
// (socket_attempt.h), or in the simulation's network.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "route/request_attempts.h"
#include "route/worker_answer.h"
#include "route/worker_table.h"
#include "server/exchange.h"

namespace headrace {

// All on the exchange's strand, where the callbacks are called, too. Never inside of start() or
// read().
class WorkerAttempt {
 public:
  struct Callbacks {
    std::function<void()> on_bytes;  // more of the answer is there, or its end; then read()
    std::function<void(AttemptFailure failure, std::string why)> on_failed;  // at most once
  };
  virtual ~WorkerAttempt() = default;

  // `reuse`: a connection that waits will do; if it turns out to be closed, a new one is made.
  virtual void start(std::string head, std::shared_ptr<const std::string> body, bool reuse) = 0;
  virtual void read() = 0;
  // No more callbacks; the worker sees that it is cancelled.
  virtual void abandon() = 0;
  // The connection may serve others. REQUIRES: answer().complete()
  virtual void finish() = 0;

  virtual WorkerAnswer& answer() = 0;
  virtual int worker() const = 0;
  virtual bool connected() const = 0;
  // Since the last byte, or the begin.
  virtual double silent_seconds() const = 0;
};

class AttemptSource {
 public:
  virtual ~AttemptSource() = default;
  virtual std::shared_ptr<WorkerAttempt> make(WorkerLease lease, std::shared_ptr<Exchange> exchange,
                                              WorkerAttempt::Callbacks callbacks) = 0;
};

}  // namespace headrace
