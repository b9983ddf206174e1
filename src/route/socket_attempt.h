// A try of a request over a connection to a worker.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "route/worker_attempt.h"
#include "route/worker_connection.h"

namespace headrace {

// Makes them. Outlives them.
class SocketAttempts final : public AttemptSource {
 public:
  SocketAttempts(WorkerConnections& connections, const Clock& clock)
      : connections_(connections), clock_(clock) {}
  std::shared_ptr<WorkerAttempt> make(WorkerLease lease, std::shared_ptr<Exchange> exchange,
                                      WorkerAttempt::Callbacks callbacks) override;

 private:
  WorkerConnections& connections_;
  const Clock& clock_;
};

}  // namespace headrace
