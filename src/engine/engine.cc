#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/first_error.h"
#include "base/inline_vector.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/kv_archive.h"
#include "kv/prefix_pins.h"
#include "sched/beam_search.h"
#include "sched/queue_gauge.h"

namespace headrace {
namespace {

// What other threads ask of the engine thread.
struct SubmitCommand {
  Request request;
  EmissionSink sink;
};
struct CancelCommand {
  RequestId request;
};
struct CancelChoiceCommand {
  RequestId request;
  int32_t choice;
};
struct PinCommand {
  uint64_t pin;
  std::string salt;
  std::vector<TokenId> tokens;
  std::function<void(int64_t)> done;
};
struct UnpinCommand {
  uint64_t pin;
};
struct ClearCacheCommand {
  std::function<void(bool)> done;
};
using Command = std::variant<SubmitCommand, CancelCommand, CancelChoiceCommand, PinCommand,
                             UnpinCommand, ClearCacheCommand>;

// A request whose sink still expects emissions.
struct Live {
  RequestId id;
  EmissionSink sink;
  InlineVector<bool, 8> finished;  // per choice
  int32_t unfinished = 0;
  int64_t prompt_tokens = 0;
  bool background = false;
  bool admitted = false;  // its sink knows that it left the queue
};

struct InFlight {
  Ticket ticket;
  double began = 0;
  std::unique_ptr<StepPlan> plan;  // at a fixed address until wait() returned
  double submit_seconds = 0;       // that the runner took to start it
  bool after_idle = false;         // there was nothing to do before it
};

// Adds the time from its beginning to its end.
class PhaseTimer {
 public:
  PhaseTimer(const Clock& clock, double& total) : clock_(clock), total_(total) {}
  ~PhaseTimer() { total_ += clock_.now_seconds() - start_; }

 private:
  const Clock& clock_;
  double& total_;
  const double start_ = clock_.now_seconds();
};

// A gap is counted where there was work all the time: an idle device is no fault.
void add_timing(const InFlight& step, const RunnerTiming& timing, EngineStats& totals) {
  totals.host[HostPhase::kBuild] += timing.build_seconds;
  totals.host[HostPhase::kUpload] += timing.upload_seconds;
  totals.host[HostPhase::kLaunch] +=
      step.submit_seconds - timing.build_seconds - timing.upload_seconds;
  totals.host[HostPhase::kCollect] += timing.collect_seconds;
  totals.device_seconds_total += timing.device_seconds;
  if (!step.after_idle) totals.device_gap_seconds_total += timing.gap_seconds;
}

constexpr auto kNothingFits = std::chrono::microseconds(200);

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, std::unique_ptr<Scheduler> scheduler,
             std::unique_ptr<Runner> runner)
      : options_(std::move(options)),
        scheduler_(std::move(scheduler)),
        runner_(std::move(runner)),
        takes_constraints_(runner_->takes_constraints()),
        takes_adapters_(runner_->takes_adapters()),
        pins_(scheduler_->prefix_cache(), options_.arithmetic),
        seed_origin_(static_cast<uint64_t>(clock_.now_ns())),
        gauges_{QueueGauge(options_.scheduler), QueueGauge(options_.scheduler)} {
    last_progress_ns_ = clock_.now_ns();
    stats_.scheduler = scheduler_->stats();
    thread_ = std::thread([this] { loop(); });
  }

  ~EngineImpl() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  RequestId next_request_id() override { return RequestId(++last_request_id_); }

  Status submit(Request request, EmissionSink sink) override;

  void cancel(RequestId request) override { post(CancelCommand{request}); }
  void cancel_choice(RequestId request, int32_t choice) override {
    post(CancelChoiceCommand{request, choice});
  }

  void pin_prefix(uint64_t pin, std::string salt, std::vector<TokenId> tokens,
                  std::function<void(int64_t)> done) override {
    post(PinCommand{pin, std::move(salt), std::move(tokens), std::move(done)});
  }
  void unpin_prefix(uint64_t pin) override { post(UnpinCommand{pin}); }
  void clear_prefix_cache(std::function<void(bool)> done) override {
    post(ClearCacheCommand{std::move(done)});
  }

  bool takes_constraints() const override { return takes_constraints_; }

  double retry_after_seconds() const override {
    std::lock_guard lock(mutex_);
    return gauges_[refused_background_].retry_seconds(refused_tokens_, clock_.now_seconds());
  }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  std::vector<PastStep> recent_steps(uint64_t after) const override {
    std::lock_guard lock(mutex_);
    return steps_.since(after, clock_.now_seconds());
  }

  Status health() const override {
    HR_RETURN_IF_ERROR(failure_.first());
    if (!busy_.load(std::memory_order_relaxed)) return ok_status();
    const auto silent_ns = clock_.now_ns() - last_progress_ns_.load(std::memory_order_relaxed);
    if (static_cast<double>(silent_ns) * 1e-9 < options_.watchdog_seconds) return ok_status();
    return unavailable("the engine makes no progress");
  }

  bool drain(double seconds_max) override {
    std::unique_lock lock(mutex_);
    draining_ = true;
    return idle_.wait_for(lock, std::chrono::duration<double>(seconds_max),
                          [&] { return outstanding() == 0; });
  }

  const EngineOptions& options() const override { return options_; }

 private:
  void post(Command command) {
    {
      std::lock_guard lock(mutex_);
      mailbox_.push_back(std::move(command));
    }
    wake_.notify_one();
  }

  Status check_request(const Request& request) const;
  // REQUIRES: mutex_
  int64_t outstanding() const { return gauges_[0].outstanding() + gauges_[1].outstanding(); }

  // The engine thread.
  void loop();
  bool take_commands();                // waits while there is nothing to do; false: stop
  Live* find_live(RequestId request);  // null: unknown, or has ended
  Live* live_of(RequestId request, uint32_t owner);
  uint32_t take_place(RequestId request);
  void handle(SubmitCommand command);
  void handle(CancelCommand command);
  void handle(CancelChoiceCommand command);
  void handle(PinCommand command) {
    command.done(pins_.pin(command.pin, std::move(command.salt), std::move(command.tokens)));
  }
  void handle(UnpinCommand command) { pins_.unpin(command.pin); }
  void handle(ClearCacheCommand command) {
    const bool idle = !failure_.any() && !scheduler_->has_work() && in_flight_.empty();
    PrefixCache* const cache = scheduler_->prefix_cache();
    if (idle && cache) cache->clear();
    command.done(idle);
  }
  bool start_step();   // false: nothing to run now
  void finish_step();  // waits for the oldest step in flight and delivers what it brought
  void tell_admitted(const StepPlan& plan);
  void deliver(const Emission& emission);
  void finish_all(Live& live, FinishReason reason);
  void end_request(Live& live);
  void fail_all(const Status& status);
  void publish_stats(const InFlight* ended);
  void restore_kept();
  void save_kept();

  const EngineOptions options_;
  const SystemClock clock_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Runner> runner_;
  const bool takes_constraints_;
  const bool takes_adapters_;
  PrefixPins pins_;  // the engine thread's
  const uint64_t seed_origin_;

  // Shared, under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Command> mailbox_;
  EngineStats stats_;
  StepHistory steps_;
  int64_t kept_left_out_ = 0;         // units of the file of kept pages that found no room
  std::array<QueueGauge, 2> gauges_;  // of the requests submitted and not ended: live, background
  size_t refused_background_ = 0;
  int64_t refused_tokens_ = 0;  // prompt of the request that was refused last
  bool draining_ = false;
  bool stopping_ = false;

  std::atomic<uint64_t> last_request_id_{0};
  FirstError failure_;  // of a step
  std::atomic<bool> busy_{false};
  std::atomic<int64_t> last_progress_ns_{0};

  // The engine thread's own.
  // Its requests lie side by side at their Request::owner; places of those that ended are used
  // again.
  std::deque<Live> live_;
  std::vector<uint32_t> free_places_;
  std::unordered_map<RequestId, uint32_t> places_;
  std::deque<InFlight> in_flight_;
  EngineStats totals_;
  bool was_idle_ = true;  // there was nothing to do since the last step was submitted

  std::thread thread_;
};

Status EngineImpl::check_request(const Request& request) const {
  const auto outside = [&](TokenId token) { return token < 0 || token >= options_.vocab_size; };
  const auto check_tokens = [&](const std::vector<TokenId>& tokens, std::string_view name) {
    const auto wrong = std::find_if(tokens.begin(), tokens.end(), outside);
    if (wrong == tokens.end()) return ok_status();
    return invalid_argument(fmt::format("{} token {} is id {}, outside the vocabulary of {}", name,
                                        wrong - tokens.begin(), *wrong, options_.vocab_size),
                            std::string(name));
  };
  HR_RETURN_IF_ERROR(check_tokens(request.prompt, "prompt"));
  HR_RETURN_IF_ERROR(check_tokens(request.answered, "answered"));
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (outside(token)) {
      return invalid_argument(fmt::format("logit_bias names id {}, outside the vocabulary of {}",
                                          token, options_.vocab_size),
                              "logit_bias");
    }
  }
  for (TokenId token : request.sampling.stop_token_ids) {
    if (outside(token)) {
      return invalid_argument(
          fmt::format("stop_token_ids names id {}, outside the vocabulary of {}", token,
                      options_.vocab_size),
          "stop_token_ids");
    }
  }
  if (const char* name = rare_sampler(request.sampling); name && !options_.rare_samplers) {
    return invalid_argument(
        fmt::format("{} is not supported on this device: temperature, top_k, top_p, min_p and the "
                    "other penalties are",
                    name),
        name);
  }
  if (request.beams &&
      candidates_per_beam(request, options_.scheduler.end_ids.size()) > options_.vocab_size) {
    return invalid_argument(fmt::format("beam_width is {}, too many for a vocabulary of {} tokens",
                                        request.beams->width, options_.vocab_size),
                            "beam_width");
  }
  if (request.constraint != nullptr && !takes_constraints_) {
    return invalid_argument("this model's engine takes no structured output");
  }
  if (request.adapter_weights != nullptr && !takes_adapters_) {
    return invalid_argument("this engine computes without adapters", "model");
  }
  return scheduler_->check(request);
}

Status EngineImpl::submit(Request request, EmissionSink sink) {
  HR_RETURN_IF_ERROR(check_request(request));
  if (!request.sampling.seed) {
    request.sampling.seed = mix64(seed_origin_ ^ mix64(request.id.value));
  }
  if (request.adapter_weights != nullptr) request.adapter = request.adapter_weights->key();
  if (request.arithmetic == 0) request.arithmetic = options_.arithmetic;
  {
    std::lock_guard lock(mutex_);
    if (draining_ || stopping_) return unavailable("the server is shutting down");
    if (failure_.any()) return unavailable(std::string(failure_.first().message()));
    const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
    const size_t kind = request.background ? 1 : 0;
    if (Status room = gauges_[kind].check(prompt_tokens, clock_.now_seconds()); !room.ok()) {
      refused_tokens_ = prompt_tokens;
      refused_background_ = kind;
      return room;
    }
    gauges_[kind].entered(prompt_tokens, clock_.now_seconds());
    mailbox_.push_back(SubmitCommand{std::move(request), std::move(sink)});
  }
  wake_.notify_one();
  return ok_status();
}

// Before the first request.
void EngineImpl::restore_kept() {
  PrefixCache* cache = scheduler_->prefix_cache();
  if (options_.kv_save_path.empty() || cache == nullptr || runner_->page_bytes() == 0) return;
  const auto restored =
      restore_kv(options_.kv_save_path, options_.kv_fingerprint, *cache, *runner_);
  if (restored.ok()) {
    kept_left_out_ = restored->left_out;
    log_info("{} units of keys and values restored from {}, {} damaged, {} without room",
             restored->units, options_.kv_save_path, restored->damaged, restored->left_out);
  } else if (restored.status().code() != StatusCode::kNotFound) {
    log_warning("keys and values are not restored: {}", restored.status().message());
  }
}

// After the last step.
void EngineImpl::save_kept() {
  const PrefixCache* cache = scheduler_->prefix_cache();
  if (options_.kv_save_path.empty() || cache == nullptr || runner_->page_bytes() == 0 ||
      failure_.any()) {
    return;
  }
  if (kept_left_out_ > 0 && totals_.steps == 0) {
    log_info("{} stays as it was: nothing has been computed since", options_.kv_save_path);
    return;
  }
  const auto saved = save_kv(options_.kv_save_path, options_.kv_fingerprint, *cache, *runner_);
  if (saved.ok()) {
    log_info("{} units of keys and values saved to {}", saved->units, options_.kv_save_path);
  } else {
    log_warning("keys and values are not saved: {}", saved.status().message());
  }
}

void EngineImpl::loop() {
  restore_kept();
  while (take_commands()) {
    const bool started = start_step();
    const auto depth = static_cast<size_t>(options_.scheduler.steps_in_flight_max);
    if (!in_flight_.empty() && (!started || in_flight_.size() >= depth)) finish_step();
    publish_stats(nullptr);
  }
  while (!in_flight_.empty()) {
    (void)runner_->wait(in_flight_.front().ticket);
    in_flight_.pop_front();
  }
  // Who came when it stopped already is taken, to be told.
  std::deque<Command> late;
  {
    std::lock_guard lock(mutex_);
    late.swap(mailbox_);
  }
  for (Command& command : late) {
    std::visit([&](auto& c) { handle(std::move(c)); }, command);
  }
  fail_all(unavailable("the engine stopped"));
  save_kept();
}

bool EngineImpl::take_commands() {
  std::deque<Command> commands;
  {
    std::unique_lock lock(mutex_);
    const auto something = [&] { return stopping_ || !mailbox_.empty(); };
    const bool work = !failure_.any() && (scheduler_->has_work() || !in_flight_.empty());
    busy_.store(work, std::memory_order_relaxed);
    if (!work) {
      if (!std::exchange(was_idle_, true) && !failure_.any()) {
        lock.unlock();
        runner_->forget_requests();
        lock.lock();
      }
      while (!something()) {
        lock.unlock();
        const bool did_something = !failure_.any() && runner_->idle_work();
        lock.lock();
        if (!did_something) wake_.wait(lock, something);
      }
    }
    if (stopping_) return false;
    commands.swap(mailbox_);
  }
  if (!commands.empty() && !busy_) {
    last_progress_ns_ = clock_.now_ns();  // idle time is not silence
    busy_ = true;
  }
  if (commands.empty()) return true;
  const PhaseTimer timer(clock_, totals_.host[HostPhase::kCommands]);
  for (Command& command : commands) {
    std::visit([&](auto& c) { handle(std::move(c)); }, command);
  }
  return true;
}

void EngineImpl::handle(SubmitCommand command) {
  const RequestId id = command.request.id;
  const int32_t n = command.request.sampling.n;
  const uint32_t place = take_place(id);
  Live& live = live_[place];
  live = {.id = id,
          .sink = std::move(command.sink),
          .finished = {},
          .unfinished = n,
          .prompt_tokens = static_cast<int64_t>(command.request.prompt.size()),
          .background = command.request.background};
  for (int32_t choice = 0; choice < n; ++choice) live.finished.push_back(false);
  command.request.owner = place;
  const Status status =
      failure_.any() ? failure_.first() : scheduler_->add(std::move(command.request));
  if (status.ok()) return;
  // check() passed and the queue is bounded in submit(), so this is the engine ending, not the
  // input.
  log_warning("request {} was not taken: {}", id.value, status.message());
  for (int32_t choice = 0; choice < n; ++choice) {
    deliver({.request = id, .owner = place, .choice = choice, .finish = FinishReason::kAbort});
  }
}

void EngineImpl::handle(CancelCommand command) {
  Live* live = find_live(command.request);
  if (live == nullptr) return;  // it has just ended: an ordinary event
  (void)scheduler_->cancel(command.request);
  publish_stats(nullptr);  // before anybody hears of the end, as after a step
  finish_all(*live, FinishReason::kAbort);
}

void EngineImpl::handle(CancelChoiceCommand command) {
  Live* live = find_live(command.request);
  if (live == nullptr) return;
  const auto choice = static_cast<size_t>(command.choice);
  if (command.choice < 0 || choice >= live->finished.size() || live->finished[choice]) return;
  (void)scheduler_->cancel(command.request, command.choice);
  live->finished[choice] = true;
  if (--live->unfinished == 0) end_request(*live);
}

// ---- requests and their sinks -------------------------------------------------------------------

uint32_t EngineImpl::take_place(RequestId request) {
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<uint32_t>(live_.size()));
    live_.emplace_back();
  }
  const uint32_t place = free_places_.back();
  free_places_.pop_back();
  places_.emplace(request, place);
  return place;
}

Live* EngineImpl::find_live(RequestId request) {
  const auto found = places_.find(request);
  return found == places_.end() ? nullptr : &live_[found->second];
}

// The place of one that ended may have been given to another.
Live* EngineImpl::live_of(RequestId request, uint32_t owner) {
  CHECK(owner < live_.size());
  Live& live = live_[owner];
  return live.id == request ? &live : nullptr;
}

// ---- steps --------------------------------------------------------------------------------------

bool EngineImpl::start_step() {
  if (failure_.any()) return false;
  const double before = clock_.now_seconds();
  auto plan = std::make_unique<StepPlan>(scheduler_->plan());
  const double planned = clock_.now_seconds();
  totals_.host[HostPhase::kPlan] += planned - before;
  if (plan->empty()) {
    // Nothing fits now although work waits: only a step in flight or a command can change that.
    if (in_flight_.empty() && scheduler_->has_work()) std::this_thread::sleep_for(kNothingFits);
    return false;
  }
  tell_admitted(*plan);
  const double told = clock_.now_seconds();
  totals_.host[HostPhase::kDeliver] += told - planned;
  const Ticket ticket = runner_->submit_forward(*plan);
  double submit_seconds = clock_.now_seconds() - told;
  // The forward stage runs meanwhile.
  if (runner_->sample_needs_results(ticket)) {
    while (!in_flight_.empty()) finish_step();
    if (failure_.any()) return false;
  }
  const double before_sample = clock_.now_seconds();
  runner_->submit_sample(ticket);
  submit_seconds += clock_.now_seconds() - before_sample;
  totals_.step_tokens_total += static_cast<uint64_t>(plan->token_count);
  totals_.step_sequences_total += plan->work.size();
  totals_.work += work_of(*plan, options_.model_work);
  const auto bound =
      std::lower_bound(kStepTokenBounds.begin(), kStepTokenBounds.end(), plan->token_count);
  ++totals_.steps_by_tokens[static_cast<size_t>(bound - kStepTokenBounds.begin())];
  totals_.step_seconds_total += told - before + submit_seconds;
  in_flight_.push_back(
      {ticket, before, std::move(plan), submit_seconds, std::exchange(was_idle_, false)});
  return true;
}

void EngineImpl::finish_step() {
  const double before = clock_.now_seconds();
  InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  Result<StepResult> result = runner_->wait(step.ticket);
  if (!result.ok()) {
    // The device is lost: steps in flight behind it fail, too.
    const Status error = result.status();
    if (!failure_.any()) log_error("a step failed, the engine stops: {}", error.message());
    failure_.add(internal_error(fmt::format("the engine has failed: {}", error.message())));
    return fail_all(error);
  }
  add_timing(step, runner_->timing(), totals_);
  std::vector<Emission> emissions;
  {
    const PhaseTimer timer(clock_, totals_.host[HostPhase::kApply]);
    emissions = scheduler_->apply(*step.plan, *result);
  }
  // Before anybody hears of the step: who has its last token finds it counted.
  ++totals_.steps;
  if (totals_.steps % kKvSlotsEvery == 0) {
    totals_.kv_slots = scheduler_->kv_waste();
    totals_.kv_slots_total = totals_.kv_slots_total + totals_.kv_slots;
  }
  publish_stats(&step);
  {
    const PhaseTimer timer(clock_, totals_.host[HostPhase::kDeliver]);
    for (const Emission& emission : emissions) deliver(emission);
  }
  totals_.step_seconds_total += clock_.now_seconds() - before;
  last_progress_ns_.store(clock_.now_ns(), std::memory_order_relaxed);
}

// A preempted request is admitted again; that is no news.
void EngineImpl::tell_admitted(const StepPlan& plan) {
  for (const Admission& admission : plan.admitted) {
    const Request& request = *admission.request;
    Live* live = live_of(request.id, request.owner);
    if (live == nullptr || std::exchange(live->admitted, true)) continue;
    live->sink({.request = request.id, .owner = request.owner, .admitted = true});
    std::lock_guard lock(mutex_);
    gauges_[live->background].started(live->prompt_tokens, clock_.now_seconds());
  }
}

void EngineImpl::deliver(const Emission& emission) {
  Live* live = live_of(emission.request, emission.owner);
  if (live == nullptr) return;
  const auto choice = static_cast<size_t>(emission.choice);
  CHECK(choice < live->finished.size());
  if (live->finished[choice]) return;
  live->sink(emission);
  if (emission.finish == FinishReason::kNone) return;
  live->finished[choice] = true;
  if (--live->unfinished == 0) end_request(*live);
}

// Finishes every choice of the request that has not finished yet.
void EngineImpl::finish_all(Live& live, FinishReason reason) {
  const RequestId id = live.id;
  const uint32_t place = places_.at(id);
  const InlineVector<bool, 8> finished = live.finished;
  for (size_t choice = 0; choice < finished.size(); ++choice) {
    if (finished[choice]) continue;
    deliver(
        {.request = id, .owner = place, .choice = static_cast<int32_t>(choice), .finish = reason});
  }
}

void EngineImpl::end_request(Live& live) {
  const bool admitted = live.admitted;
  const int64_t prompt_tokens = live.prompt_tokens;
  QueueGauge& gauge = gauges_[live.background];
  const auto place = places_.find(live.id);
  free_places_.push_back(place->second);
  places_.erase(place);
  live = {};
  std::lock_guard lock(mutex_);
  if (!admitted) gauge.left_unstarted(prompt_tokens);
  gauge.ended(clock_.now_seconds());
  if (outstanding() == 0) idle_.notify_all();
}

void EngineImpl::fail_all(const Status& status) {
  const FinishReason reason =
      status.code() == StatusCode::kUnavailable ? FinishReason::kAbort : FinishReason::kFault;
  while (!places_.empty()) finish_all(live_[places_.begin()->second], reason);
}

// `ended`: a step that has, or nullptr.
void EngineImpl::publish_stats(const InFlight* ended) {
  totals_.scheduler = scheduler_->stats();
  std::lock_guard lock(mutex_);
  stats_ = totals_;
  if (ended) steps_.add(*ended->plan, ended->began, clock_.now_seconds() - ended->began);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options,
                                               std::unique_ptr<Runner> runner) {
  static const SystemClock system_clock;
  if (options.scheduler.clock == nullptr) options.scheduler.clock = &system_clock;
  HR_ASSIGN_OR_RETURN(auto scheduler, Scheduler::create(options.scheduler));
  options.rare_samplers = runner->takes_rare_samplers();
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(options), std::move(scheduler), std::move(runner)));
}

}  // namespace headrace
