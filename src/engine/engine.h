// Engine: one thread that owns scheduler, KV bookkeeping and runner, and answers many requests at
// once. The one public header of src/engine for servers and tools. CONTRACT.md holds the rules.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/model_work.h"
#include "engine/runner.h"
#include "engine/step_history.h"
#include "engine/step_timing.h"
#include "sched/request.h"
#include "sched/scheduler.h"

namespace headrace {

// What a request's emissions go to. It is called on the engine thread, in order: once when the
// request leaves the queue (Emission::admitted), then once per step and choice. It must not block,
// and of the engine it may call cancel() alone. After an emission whose finish is not kNone there
// are none for that choice; when every choice has finished the sink is destroyed.
using EmissionSink = std::function<void(const Emission&)>;

struct EngineOptions {
  SchedulerOptions scheduler;
  int32_t vocab_size = 0;        // prompt ids outside are refused
  double watchdog_seconds = 10;  // a step that takes longer makes the engine not ready
  // What the prefix cache keeps is read from this file at start and written to it at the end
  // (kv_archive.h). Empty: no. What goes wrong is logged; the engine runs without.
  std::string kv_save_path;
  std::string kv_fingerprint;  // of model and layout
  // Of requests that name none: what decides the bits of pages beside tokens (formats of keys and
  // values, the type that is computed in). Prefixes are shared only inside one.
  uint64_t arithmetic = 0;
  ModelWork model_work;  // of what EngineStats::work is estimated
  // Whether the device has the samplers that rare_sampler() names: create() says what the runner
  // says.
  bool rare_samplers = true;
};

// Sizes of steps in tokens, by which EngineStats counts them.
inline constexpr std::array<int32_t, 13> kStepTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                             512, 1024, 2048, 4096, 8192, 16384};

struct EngineStats {
  SchedulerStats scheduler;
  uint64_t steps = 0;
  // [i]: steps of at most kStepTokenBounds[i] tokens and more than the bound before; the last: of
  // more than all bounds.
  std::array<uint64_t, kStepTokenBounds.size() + 1> steps_by_tokens{};
  double step_seconds_total = 0;    // wall time of steps
  HostSeconds host;                 // what the engine thread did, waiting for the device left out
  double device_seconds_total = 0;  // of kernels, on the device's clock; 0 on the CPU
  double device_gap_seconds_total = 0;  // between the kernels of steps while there was work
  uint64_t step_tokens_total = 0;       // tokens computed, prompt and decode
  uint64_t step_sequences_total = 0;    // sequences of each step, summed
  StepWork work;                        // of a device, estimated
  KvWaste kv_slots;                     // of the pool, in one step of kKvSlotsEvery
  KvWaste kv_slots_total;               // summed over those steps
};
inline constexpr uint64_t kKvSlotsEvery = 64;

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(EngineOptions options,
                                                std::unique_ptr<Runner> runner);
  virtual ~Engine() = default;  // cancels what runs, stops the thread

  // A fresh id for Request::id. Any thread.
  virtual RequestId next_request_id() = 0;
  // Queues a request; one without a seed gets a random one. Any thread. kInvalidArgument: it can
  // never run (field and numbers named). kExhausted: the queue is full (a server says 429).
  // kUnavailable: the engine drains or has failed (503). On an error the sink is not called.
  virtual Status submit(Request request, EmissionSink sink) = 0;
  // Cancels a request: within one step its sink gets one last emission per unfinished choice, with
  // FinishReason::kAbort. Nothing happens for ids that are unknown or finished. Any thread.
  virtual void cancel(RequestId request) = 0;
  // Ends one choice (a stop string was found at the edge): no further emission for it.
  virtual void cancel_choice(RequestId request, int32_t choice) = 0;

  // Keeps the pages of a prefix longer than others (PrefixCache::pin): of the longest beginning of
  // `tokens` that is in the cache. `done` is told its tokens (0: nothing is pinned) on the engine
  // thread, and must not block. An engine without a cache pins nothing. Any thread.
  virtual void pin_prefix(uint64_t pin, std::string salt, std::vector<TokenId> tokens,
                          std::function<void(int64_t)> done) = 0;
  virtual void unpin_prefix(uint64_t pin) = 0;  // also of ids that are unknown. Any thread

  // Forgets every prefix that is kept, if no request waits or runs; else nothing happens. `done` is
  // told which (true: all is forgotten), on the engine thread or at once, and must not block. Pins
  // stay, without what they kept. Any thread.
  virtual void clear_prefix_cache(std::function<void(bool)> done) { done(false); }

  // Whether it takes requests whose answers have a form (Request::constraint). Any thread.
  virtual bool takes_constraints() const { return false; }

  // After submit() said kExhausted: the seconds until it would not, as things go now. Any thread.
  virtual double retry_after_seconds() const { return 1; }

  virtual EngineStats stats() const = 0;  // any thread; a snapshot of the last step
  // The last steps behind number `after`, oldest first (StepHistory). Any thread.
  virtual std::vector<PastStep> recent_steps([[maybe_unused]] uint64_t after) const { return {}; }
  // Whether the engine makes progress. kInternal, naming the error, when a step has failed: all
  // requests have ended, and others are refused; kUnavailable when work waits and no step has ended
  // for watchdog_seconds. Any thread.
  virtual Status health() const = 0;
  bool healthy() const { return health().ok(); }
  // Refuses new requests from now on; returns when all are done or the time is over (true: all
  // done).
  virtual bool drain(double seconds_max) = 0;

  virtual const EngineOptions& options() const = 0;
};

}  // namespace headrace
