// A batch job beside the live traffic of a server (--batch-input, --batch-output).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/status.h"
#include "server/batch_job.h"
#include "server/server_state.h"

namespace headrace {

struct BatchBesideOptions {
  std::string input, output;
  JsonLimits json;
  bool has_keys = false;  // of the server: then the job's requests are the first key's
};

// Runs a batch job on what live requests leave. The job is over with its last line; the server goes
// on. A server that stops leaves the rest to the next run.
class BatchBeside {
 public:
  // Reads both files: their errors are those of the command line.
  static Result<std::unique_ptr<BatchBeside>> open(const BatchBesideOptions& options);
  BatchBeside(const BatchBesideOptions& options, BatchRequests requests, BatchJournal journal);
  ~BatchBeside() { stop(); }
  BatchBeside(const BatchBeside&) = delete;

  // REQUIRES: state.model() is set, and `state` outlives stop(). Once.
  void start(ServerState& state);
  void stop();

 private:
  void run(ServerState& state);
  void run_requests(ServerState& state);

  const std::string input_;
  const BatchRequests requests_;
  BatchJournal journal_;
  BatchOptions options_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace headrace
