// The workers: their addresses, how they are, what they compute for this router, and who gets the
// next request. All that is decided, without sockets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "route/bounded_map.h"
#include "route/route_policy.h"
#include "route/worker_health.h"
#include "server/http_channel.h"

namespace headrace {

// kInvalidArgument or kUnsupported: what is no address of a worker.
Result<HttpTarget> parse_worker_url(std::string_view url);

// A worker's answers to a poll.
struct WorkerReport {
  enum class Health { kReady, kDraining, kNotReady, kUnreachable };
  Health health = Health::kUnreachable;
  int64_t requests = -1;     // that run or wait there, whoever sent them; -1: it does not say
  int64_t cache_tokens = 0;  // that its cache holds; 0: it does not say
  double kv_usage = -1;      // of it, of 0 to 1; below 0: it does not say
  bool resumes = false;      // it is a Headrace server, which goes on with others' streams
};

struct ServedModelName {
  std::string name;
  int64_t tokens_max = 0;  // of prompt and answer; 0: it does not say
  bool made = false;       // by a client, whose alone it is (/api/create)
};

struct WorkerCounts {
  int64_t requests = 0, errors = 0, retries = 0, resumes = 0;
};

struct WorkerSnapshot {
  int id = 0;
  std::shared_ptr<const HttpTarget> target;
  WorkerState state = WorkerState::kUnknown;
  int64_t in_flight = 0, told_requests = 0;
  double load_tokens = 0;
  double first_token_seconds = 0;  // for a token ahead of it
  size_t prefix_blocks = 0;
  WorkerCounts counts;
  std::vector<std::string> models;
};

class WorkerTable;

// A request at a worker: counts there as long as it lives.
class WorkerLease {
 public:
  WorkerLease() = default;
  WorkerLease(WorkerTable* table, int id, double tokens, double tokens_ahead,
              std::shared_ptr<const HttpTarget> target)
      : table_(table),
        id_(id),
        tokens_(tokens),
        tokens_ahead_(tokens_ahead),
        target_(std::move(target)) {}
  WorkerLease(WorkerLease&& other) noexcept { *this = std::move(other); }
  WorkerLease& operator=(WorkerLease&& other) noexcept;
  ~WorkerLease() { release(); }

  void release();
  bool held() const { return table_ != nullptr; }
  int id() const { return id_; }
  // Tokens that were to be computed there before this request's first: its own and, in part,
  // others'.
  double tokens_ahead() const { return tokens_ahead_; }
  const HttpTarget& target() const { return *target_; }

 private:
  WorkerTable* table_ = nullptr;
  int id_ = -1;
  double tokens_ = 0, tokens_ahead_ = 0;
  std::shared_ptr<const HttpTarget> target_;
};

struct WorkerTableOptions {
  RoutePolicyKind policy = RoutePolicyKind::kPrefixAware;
  RoutePolicyOptions choice;
  size_t prefix_tokens = 256 << 10;    // of a worker that does not say what its cache holds
  size_t owners_max = 256 << 10;       // ids of files, batches and responses that are remembered
  bool members_are_looked_up = false;  // by DNS or etcd: who is away at the start is not known
};

// Any thread. Outlives its leases.
class WorkerTable {
 public:
  WorkerTable(WorkerTableOptions options, const Clock& clock);
  ~WorkerTable();

  // The worker's id; of an address that is there already that one's. Ids are not used again.
  int add(const HttpTarget& target);
  bool remove(int id);
  bool drain(int id, bool drains);
  std::optional<int> find(std::string_view host, std::string_view port) const;

  // A worker that takes the request, by the policy; none: nobody that is not excluded is there.
  std::optional<WorkerLease> choose(const RequestFacts& request, std::span<const int> excluded);
  // Whether somebody takes requests at all.
  bool anybody_up() const;
  // Whether somebody takes no requests (does not answer, drains, met errors), or was taken away
  // within the last minute (a lease that ended), who may have what others do not know. A table
  // whose members are looked up may have begun after that: for its first minute somebody is away.
  bool anybody_away() const;
  // Everybody who takes requests, but for those excluded, one a call.
  std::optional<WorkerLease> choose_next(std::span<const int> excluded);

  void report(int id, const WorkerReport& report);
  void report_models(int id, std::vector<ServedModelName> models);
  void on_lost(int id);
  void on_heard(int id);
  void on_answer(int id, int status);
  // The first token came so long after the request was sent, behind so many tokens.
  void on_first_token(int id, double seconds, double tokens_ahead);
  void count_retry(int id, bool resumed);
  // The worker has something under that id.
  void remember_owner(std::string_view owned_id, int id);
  // It answered something lately: the router hears of it otherwise than by this stream.
  bool heard_within(int id, double seconds) const;
  bool has(int id) const;
  // It is up or draining.
  bool answers(int id) const;

  std::vector<WorkerSnapshot> snapshot() const;
  // The longest context in which somebody serves the model; 0: nobody says.
  int64_t context_of(std::string_view model) const;
  // Models that are served by workers that are up.
  std::vector<ServedModelName> models() const;

 private:
  friend class WorkerLease;
  struct Worker;

  Worker* worker(int id);
  const Worker* worker(int id) const;
  // Those that take the request, into candidates_.
  void gather(const RequestFacts* request, std::span<const int> excluded);
  bool may_take(const Worker& worker, const RequestFacts& request, bool known) const;
  bool is_known(std::string_view model) const;
  size_t pick(const RequestFacts& request);
  WorkerLease lease(Worker& worker, const RequestFacts* request);
  void release(int id, double tokens);

  const WorkerTableOptions options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int next_id_ = 0;
  std::map<std::string, double> left_;  // addresses that were taken away: when
  const double began_;
  const std::unique_ptr<RoutePolicy> policy_;
  BoundedMap<int> owners_;
  // Scratch of choose().
  std::vector<Worker*> taking_;
  std::vector<RouteCandidate> candidates_;
};

}  // namespace headrace
