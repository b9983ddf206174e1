// ModelPool: the models of a server, of which those are in memory that are used. A request names
// its model; one that is not loaded is loaded for it, and where there is no room the longest unused
// goes first, once no request is under way in it.
//
//   unloaded, sleeping ── a request, load() ──> loading ──> ready ──> unloading ──> unloaded
//                            failed <── an error ──┘          │ unload(), idle time, no room
//                                                             └── requests under way end first
//
// Threads: loads, unloads and the end of models happen on the pool's own thread, one at a time. All
// other members may be called from any thread and take one mutex that is never held during a load;
// what they are told (Told, Done) is told on the pool's thread, or at once, and must not block.
//
// A model that another one waits for takes no new requests: they wait until it is loaded again. So
// two models that have room for one take turns, and neither starves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/ready_model.h"
#include "server/server_limits.h"

namespace headrace {

inline constexpr double kNeverIdle = std::numeric_limits<double>::infinity();

// A loaded model and what it lives in, which goes with it on the pool's thread.
struct ModelInstance {
  ServedModel served;
  std::shared_ptr<void> owner;
};

// What is known of a model that is not loaded.
struct ServedModelSpec {
  std::vector<std::string> names;          // accepted in `model`; the first is returned
  std::vector<std::string> other_names;    // accepted likewise, and listed nowhere
  std::vector<std::string> adapter_names;  // of those it is loaded with: they lead to it
  ModelFacts facts;  // as far as known: path, file_bytes; whole once it was loaded
  double idle_seconds =
      0;  // without a request, before it sleeps; 0: ModelPoolOptions::idle_seconds
  // Takes as long as it takes. Empty: the model stays as it is for as long as the server runs.
  std::function<Result<ModelInstance>()> load;
};

struct ModelPoolOptions {
  int32_t loaded_max = 0;            // models in memory at a time; 0: as memory_bytes_max says
  int64_t memory_bytes_max = 0;      // of their weights, keys and values; 0: no bound
  double idle_seconds = kNeverIdle;  // without a request, before a model sleeps
  bool loads_on_request = true;      // else requests for a model that is unloaded are refused
  bool follows_keep_alive = false;   // whether requests say for how long their model stays
  bool has_default = true;           // a request that names no model means the first
  bool grows = false;                // by add(); then there may be none at first
  double failed_seconds = 5;         // a model that failed to load is not tried again before
};

enum class ModelState : uint8_t {
  kUnloaded,
  kLoading,
  kReady,
  kUnloading,
  kSleeping,  // unloaded until the next request, also where requests do not load
  kFailed,    // as kUnloaded, with the error of its last load
};
std::string_view model_state_name(ModelState state);

// Of one model, as of now.
struct ModelStatus {
  std::vector<std::string> names;
  ModelState state = ModelState::kUnloaded;
  Status error;               // of kFailed
  ModelFacts facts;           // of the last load, else of the file
  int32_t max_model_len = 0;  // 0: it was never loaded
  int64_t created_unix_s = 0;
  double idle_in_seconds = kNeverIdle;  // of kReady: before it sleeps, if no request comes
  int32_t requests = 0;                 // under way
  int64_t loads = 0;
  double load_seconds = 0;  // of the last
  bool stays = false;       // it is never unloaded
};

class ModelPool {
 public:
  // Why there is no model: kUnavailable, kInvalidArgument (it is unloaded, and requests do not load
  // it), kInternal (it failed to load; the message says why, without its path).
  using Told = std::function<void(Result<ModelLease>)>;
  using Done = std::function<void(Status)>;
  // Of what shall become of a model; refers to a waiting request until that is told.
  using Ticket = uint64_t;
  enum class Why : uint8_t { kRequest, kOrder };  // an order loads whatever the options say

  // `clock` outlives this.
  ModelPool(const Clock& clock, PinLimits pins) : clock_(clock), pins_(pins) {}
  ~ModelPool() { close(); }
  ModelPool(const ModelPool&) = delete;

  // From now on there are models; `first`, if any, is that of specs[0], loaded. Once.
  // kInvalidArgument: two of one name. REQUIRES: specs without `load` have their instance: `first`
  Status open(ModelPoolOptions options, std::vector<ServedModelSpec> specs,
              std::optional<ModelInstance> first);
  // One more model, which the first request loads. kInvalidArgument: its name is another's;
  // kExhausted: there are too many. REQUIRES: is_open(), with `grows`
  Status add(ServedModelSpec spec);
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  const ModelPoolOptions& options() const { return options_; }

  // The model of a server that has one, which stays. nullptr: none yet, or models come and go.
  const ReadyModel* only() const { return only_.load(std::memory_order_acquire); }

  // Its place. Nothing: no model of that name; of the empty name: there is no default. Of the only
  // one that there is any name, as its handlers refuse it in their own words. REQUIRES: is_open()
  std::optional<size_t> find(std::string_view name) const;

  // nullptr: it is not loaded, or about to be unloaded.
  ModelLease try_acquire(size_t place) { return lease(place, Use::kRequest); }
  // The same for who only asks: it does not count as a use.
  ModelLease look_at(size_t place) { return lease(place, Use::kLook); }
  std::vector<ModelLease> loaded();  // for who only asks

  // Loads the model where it is not, and tells.
  Ticket acquire(size_t place, Why why, Told told);
  // Who waits does no more: nothing is told. A load that nobody waits for does not begin.
  void give_up(Ticket ticket);

  // Unloads the model once no request is under way in it; new ones wait until then and load it
  // again. `to`: kUnloaded or kSleeping. kInvalidArgument: it stays.
  void unload(size_t place, ModelState to, Done done);
  // For how long the model stays without a request, from now on; kNeverIdle: for good.
  void keep_alive(size_t place, double seconds);

  ModelStatus status(size_t place) const;
  size_t size() const { return count_.load(std::memory_order_acquire); }
  std::shared_ptr<ServerMetrics> metrics(size_t place) const { return entries_[place]->metrics; }
  // Of the models that were loaded so far, tokens.
  int32_t longest_context() const { return longest_context_.load(std::memory_order_relaxed); }

  // No more loads: who waits for one is told kUnavailable.
  void stop_loads();
  bool is_loading() const;
  // Ends all models and the thread; a load under way is waited for. Leases that are left must not
  // be used any more.
  void close();
  // Whether models may have ended under leases that are left. Any thread.
  bool is_closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  enum class Use : uint8_t { kRequest, kLook };
  struct Waiter {
    Ticket ticket;
    Told told;
  };
  struct Entry {
    Entry(const ServedModelSpec& of, const ModelPoolOptions& options);  // all but `spec`

    ServedModelSpec spec;
    std::shared_ptr<ServerMetrics> metrics;
    ModelStatus status;  // `names`, `requests` and `idle_in_seconds` are filled in when asked for
    std::unique_ptr<ReadyModel> ready;
    std::shared_ptr<void> owner;
    int32_t users = 0;    // leases
    double last_use = 0;  // clock
    double idle_seconds = kNeverIdle;
    double failed_at = 0;  // clock
    int64_t bytes = 0;     // in memory; before its first load of its file
    int32_t fits_beside = std::numeric_limits<int32_t>::max();  // others, as its last load found
    uint64_t wanted = 0;                  // order of the loads to come; 0: it is not wanted
    std::optional<ModelState> leaves_to;  // it takes no requests, and goes when there are none
    std::vector<Waiter> waiters;
    std::vector<Done> leavers;
  };
  struct Job {
    Entry* entry = nullptr;
    std::optional<ModelState> unload_to;  // nothing: load it
  };
  using News = std::vector<std::function<void()>>;  // to be told once the mutex is free

  ModelLease lease(size_t place, Use use);
  ModelLease make_lease(Entry& entry, Use use);  // REQUIRES: the mutex, and that it is ready
  void release(Entry& entry, Use use);
  Status refusal(const Entry& entry, Why why) const;

  void run();
  std::optional<Job> next_job(double now, News& news);
  std::optional<Job> make_room(Entry& wanted, News& news);
  Entry* longest_unused(const Entry& other_than);
  bool has_room(const Entry& entry) const;
  int32_t loaded_beside(const Entry& entry) const;
  double next_deadline() const;
  void load(Entry& entry);
  void settle(Entry& entry, std::unique_ptr<ReadyModel> ready, News& news);
  void fail(Entry& entry, Status why, News& news);
  void leave(Entry& entry, ModelState to, News& news);
  void unload_now(Entry& entry, ModelState to);

  const Clock& clock_;
  const PinLimits pins_;
  ModelPoolOptions options_;  // fixed by open()
  // Those of open(), and behind them those of add(), for which there is room: none moves.
  std::vector<std::unique_ptr<Entry>> entries_;
  std::atomic<size_t> count_{0};
  std::unordered_map<std::string, size_t> by_name_;  // under the mutex
  std::atomic<bool> open_{false}, closed_{false};
  std::atomic<const ReadyModel*> only_{nullptr};
  std::atomic<int32_t> longest_context_{0};

  mutable std::mutex mutex_;  // of what entries hold but spec and metrics, and of the rest
  std::condition_variable wake_;
  uint64_t last_ticket_ = 0, last_wanted_ = 0;
  bool no_loads_ = false, closing_ = false;
  std::thread thread_;  // none where all models stay
};

}  // namespace headrace
