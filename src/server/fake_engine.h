// An Engine for tests: no model, no scheduler. Every request runs on its own terms, one token a
// step; tokens and log-probabilities are functions of what came before them, so that generation and
// scoring must agree.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/first_error.h"
#include "engine/engine.h"

namespace headrace {

struct FakeEngineOptions {
  int32_t vocab_size = 0;
  int32_t max_model_len = 4096;
  int32_t running_max = 64;  // requests; the others wait
  int32_t queued_max = 256;
  double step_seconds = 0;
  // What every choice says, then it ends: of the first request, the second, and so on, then from
  // the front. Empty: by hash, to max_tokens.
  std::vector<std::vector<TokenId>> scripts;
  TokenId end_id = -1;  // appended behind a script
  // Whether it keeps to Request::constraint: where a token may not come, the first that may comes
  // in front of it.
  bool takes_constraints = false;
};

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options);
  ~FakeEngine() override;

  RequestId next_request_id() override { return RequestId(++last_id_); }
  Status submit(Request request, EmissionSink sink) override;
  void cancel(RequestId request) override;
  void cancel_choice(RequestId request, int32_t choice) override;
  // Pins what it is told, but of the empty prompt.
  void pin_prefix(uint64_t pin, std::string salt, std::vector<TokenId> tokens,
                  std::function<void(int64_t)> done) override;
  void unpin_prefix(uint64_t pin) override;
  void clear_prefix_cache(std::function<void(bool)> done) override;
  int times_cleared() const { return times_cleared_; }
  std::map<uint64_t, size_t> pinned() const;  // tokens by pin
  EngineStats stats() const override;
  std::vector<PastStep> recent_steps(uint64_t after) const override;
  void set_steps(std::vector<PastStep> steps);  // what recent_steps() tells of
  Status health() const override {
    if (throws_at_health_) throw std::bad_alloc();
    HR_RETURN_IF_ERROR(failure_.first());
    return healthy_ ? ok_status() : unavailable("the engine makes no progress");
  }
  bool drain(double seconds_max) override;
  bool takes_constraints() const override { return options_.takes_constraints; }
  const EngineOptions& options() const override { return engine_options_; }

  void set_healthy(bool healthy) { healthy_ = healthy; }
  // As a step that failed does: what comes next ends with a fault.
  void fail(Status health) {
    failure_.add(std::move(health));
    fail_next_emission();
  }
  void throw_when_asked_for_health(bool throws) { throws_at_health_ = throws; }
  void throw_when_cancelled(bool throws) { throws_at_cancel_ = throws; }
  void throw_when_submitted(bool throws) { throws_at_submit_ = throws; }
  void set_paused(bool paused);  // no step is made
  // Ends the choice whose emission comes behind the next `after`.
  void fail_emission(FinishReason finish, int after) {
    fault_after_ = after;
    fault_ = finish;
  }
  void fail_next_emission() { fail_emission(FinishReason::kFault, 0); }
  int submitted() const { return submitted_; }
  int cancelled() const { return cancelled_; }  // requests cancelled before their end
  Request last_request() const;

  // Of `token` right after `previous`.
  static float logprob(TokenId previous, TokenId token);
  TokenId token_at(const Request& request, int32_t choice, size_t position) const;

 private:
  struct Live {
    Request request;
    EmissionSink sink;
    std::vector<std::vector<TokenId>> outputs;            // by choice
    std::vector<size_t> scripted;                         // tokens of the script that have come
    std::vector<std::unique_ptr<TokenMatcher>> matchers;  // none without a constraint
    std::vector<bool> finished;
    bool scored = false;
    bool admitted = false;
  };
  void loop();
  bool admit(std::unique_lock<std::mutex>& lock);
  bool tell_pinned(std::unique_lock<std::mutex>& lock);
  void step(std::unique_lock<std::mutex>& lock);
  std::vector<Emission> step_request(Live& live);
  Emission step_choice(Live& live, int32_t choice);
  TokenId next_token(Live& live, int32_t choice) const;
  TokenLogprobs logprobs_of(TokenId previous, TokenId token, int32_t top) const;
  FinishReason finish_of(const Live& live, const std::vector<TokenId>& output) const;

  const FakeEngineOptions options_;
  EngineOptions engine_options_;
  std::atomic<uint64_t> last_id_{0};
  std::atomic<FinishReason> fault_{FinishReason::kNone};
  std::atomic<bool> healthy_{true}, throws_at_health_{false}, throws_at_cancel_{false},
      throws_at_submit_{false};
  std::atomic<int> submitted_{0}, cancelled_{0}, fault_after_{0};
  std::atomic<int> times_cleared_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  FirstError failure_;
  std::map<RequestId, Live> live_;  // in order of submission
  std::vector<PastStep> steps_;
  Request last_request_;
  std::map<uint64_t, size_t> pinned_;
  std::vector<std::pair<std::function<void(int64_t)>, size_t>> pin_done_;  // to be told
  bool stopping_ = false, paused_ = false, draining_ = false;
  std::thread thread_;
};

}  // namespace headrace
