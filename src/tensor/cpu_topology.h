// Which CPUs this process may use and how they hang together, and from that how many threads
// compute and where each may run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// A CPU as the kernel numbers them: a hardware thread.
struct CpuPlace {
  int32_t cpu = 0;
  int32_t core = 0;         // the lowest CPU of its physical core
  int32_t node = 0;         // NUMA
  int32_t capacity = 1024;  // of a core against the machine's fastest, 1024 (hybrid CPUs)
};

struct CpuTopology {
  std::vector<CpuPlace> cpus;  // of the affinity mask, ascending; never empty
  double quota_cpus = 1e9;     // CPUs' worth of time that the cgroups allow (v1 or v2); else huge

  // Of the calling thread, from sched_getaffinity, sysfs and procfs. Where these say nothing: one
  // node, every CPU a core. `root` stands in front of /sys and /proc (for tests); with it
  // `affinity` are the CPUs, else the mask's.
  static CpuTopology read(const std::string& root = "", std::vector<int32_t> affinity = {});
};

// Where the threads of a pool may run.
enum class CpuBinding {
  kAuto,  // kCore where the threads take every core and no quota shares them, else kNone
  kCore,  // each on one CPU of its own
  kNode,  // each on the CPUs of one node
  kNone,  // wherever the kernel puts them
};

struct ThreadPlacement {
  int32_t thread_count = 1;
  // By share of the pool's work: the CPUs it may run on. Empty: no share is bound. Shares of a node
  // are neighbours, so that neighbouring parts of a matrix lie on one node.
  std::vector<std::vector<int32_t>> cpus;
  bool several_nodes = false;  // bound to more than one: it matters who first touches a page
};

// `thread_count` 0: one a physical core, the slow cores of a hybrid CPU left out (a share of
// memory- bound work waits for its slowest part), no more than the quota.
ThreadPlacement place_threads(const CpuTopology& topology, int32_t thread_count,
                              CpuBinding binding);

// Of these threads, those of one of several ranks that compute together, each with its neighbours:
// at least one. REQUIRES: 0 <= rank < ranks
ThreadPlacement placement_of_rank(const ThreadPlacement& all, int32_t rank, int32_t ranks);

// Binds the calling thread; nothing where `cpus` is empty or the system refuses.
void bind_this_thread(const std::vector<int32_t>& cpus);

// Binds the calling thread for the time of a scope.
class BoundScope {
 public:
  explicit BoundScope(const std::vector<int32_t>& cpus);
  ~BoundScope() { bind_this_thread(before_); }
  BoundScope(const BoundScope&) = delete;
  BoundScope& operator=(const BoundScope&) = delete;

 private:
  std::vector<int32_t> before_;  // empty: nothing was bound
};

}  // namespace headrace
