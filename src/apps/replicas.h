// Replicas of a server in one process tree (serve --data-parallel-size): a process each, started
// again when it ends, behind the router of this one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_channel.h"

namespace headrace {

// One replica: this program once more.
struct ReplicaOptions {
  std::vector<std::string> arguments;  // behind the program's name
  std::vector<int32_t> cpus;           // that it may run on; empty: all
};

class Replicas {
 public:
  // Starts all of them, each on a listening socket of 127.0.0.1 that this process holds, and
  // returns when each has taken it. kUnavailable: one ended before that. `patience`: what stop()
  // gives them.
  static Result<std::unique_ptr<Replicas>> start(const std::vector<ReplicaOptions>& replicas,
                                                 std::chrono::seconds patience);
  virtual ~Replicas() = default;  // stops them

  virtual std::vector<HttpTarget> targets() const = 0;
  // What they print is printed from now on, with their numbers; their logs are from the start.
  // Returns true when all are ready to answer, false when stop() was called, or an error when one
  // ended before it was ready (kUnavailable, with its number). Once all were ready, one that ends
  // is started again, on the same port, after a second, two, four, up to half a minute.
  virtual Result<bool> wait_ready() = 0;
  // SIGTERM to all, and SIGKILL to those that have not ended in time; returns when they have ended.
  // Any thread; more than once.
  virtual void stop() = 0;
};

// Behind all flags, of which the last counts, and before the names that may stand behind "--".
void add_flag(std::vector<std::string>& arguments, std::string_view flag, std::string_view value);

// CPUs in as many parts, those of a core and of a node together where they can be.
std::vector<std::vector<int32_t>> share_cpus(int32_t parts);

}  // namespace headrace
