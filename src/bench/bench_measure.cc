#include "bench/bench_measure.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/rng.h"

namespace headrace {
namespace {

template <class T>
double mean(const std::vector<T>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

template <class T>
double stddev(const std::vector<T>& values) {
  if (values.size() < 2) return 0;
  const double center = mean(values);
  double squares = 0;
  for (T value : values) {
    const double delta = static_cast<double>(value) - center;
    squares += delta * delta;
  }
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// What the engine's thread sees of a run, by its own clock: a reader that wakes late does not
// lengthen it.
class RunClock {
 public:
  explicit RunClock(int32_t sequences)
      : sequences_(sequences), first_ns_(static_cast<size_t>(sequences), 0) {}

  void on_emission(int32_t sequence, const Emission& emission) {
    const int64_t now = clock_.now_ns();
    std::lock_guard lock(mutex_);
    const auto tokens = static_cast<int64_t>(emission.tokens.size());
    tokens_ += tokens;
    last_ns_ = now;
    if (tokens > 0 && first_ns_[static_cast<size_t>(sequence)] == 0) {
      first_ns_[static_cast<size_t>(sequence)] = now;
      if (++started_ == sequences_) {
        // Emissions of a step come in the order of admission: this one is its step's last.
        all_started_ns_ = now;
        tokens_at_start_ = tokens_;
      }
    }
    if (emission.finish == FinishReason::kNone) return;
    failed_ |= emission.finish != FinishReason::kLength;
    if (++finished_ == sequences_) done_.notify_one();
  }

  // False: a sequence did not run to its length.
  bool wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return finished_ == sequences_; });
    return !failed_;
  }

  int64_t last_ns() const { return last_ns_; }
  int64_t all_started_ns() const { return all_started_ns_; }
  int64_t decode_tokens() const { return tokens_ - tokens_at_start_; }

 private:
  const SystemClock clock_;
  const int32_t sequences_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<int64_t> first_ns_;  // by sequence; 0 = none yet
  int32_t started_ = 0, finished_ = 0;
  int64_t tokens_ = 0, tokens_at_start_ = 0;
  int64_t all_started_ns_ = 0, last_ns_ = 0;
  bool failed_ = false;
};

struct Sample {
  int64_t ns = 0;
  int64_t tokens = 0;
};

class BenchRun {
 public:
  BenchRun(ModelStack& stack, const BenchTest& test, uint64_t seed)
      : stack_(stack), test_(test), rng_(seed) {}

  Result<Sample> run() {
    const int32_t sequences = std::max(test_.streams, 1);
    const auto times = std::make_shared<RunClock>(sequences);
    const int64_t start = SystemClock().now_ns();
    for (int32_t i = 0; i < sequences; ++i) {
      HR_RETURN_IF_ERROR(stack_.engine().submit(
          request(), [times, i](const Emission& emission) { times->on_emission(i, emission); }));
    }
    if (!times->wait()) return internal_error("a sequence ended before its length");
    if (test_.streams > 0) {
      return Sample{times->last_ns() - times->all_started_ns(), times->decode_tokens()};
    }
    return Sample{times->last_ns() - start, test_.prompt + test_.generate};
  }

 private:
  // Steps: a prompt's last one gives the first token, so "pp + tg" needs one token more than tg to
  // compute tg steps after the prompt; a prompt of one token is itself a step of tg.
  Request request() {
    const int32_t prompt = std::max(test_.prompt + test_.depth, 1);
    const bool after_prompt = test_.prompt + test_.depth > 0;
    Request request{.id = stack_.engine().next_request_id()};
    const auto vocab_size = static_cast<uint64_t>(stack_.engine().options().vocab_size);
    for (int32_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng_.below(vocab_size)));
    }
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = test_.generate + (after_prompt ? 1 : 0);
    return request;
  }

  ModelStack& stack_;
  const BenchTest& test_;
  Rng rng_;
};

}  // namespace

std::string BenchTest::name() const {
  if (streams > 0) return fmt::format("tg{} @ d{} x{}", generate, depth, streams);
  if (prompt > 0 && generate > 0) return fmt::format("pp{}+tg{}", prompt, generate);
  return prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
}

double BenchResult::average_ns() const { return mean(samples_ns); }
double BenchResult::stddev_ns() const { return stddev(samples_ns); }
double BenchResult::average_ts() const { return mean(samples_ts); }
double BenchResult::stddev_ts() const { return stddev(samples_ts); }

Result<BenchResult> measure(ModelStack& stack, const BenchTest& test, const BenchPlan& plan) {
  BenchResult result{.test = test, .test_time_unix_s = std::time(nullptr)};
  const int32_t warm_ups = plan.warm_up ? 1 : 0;
  for (int32_t i = 0; i < warm_ups + plan.repetitions; ++i) {
    if (plan.on_run) plan.on_run(i, warm_ups + plan.repetitions);
    HR_ASSIGN_OR_RETURN(const Sample sample,
                        BenchRun(stack, test, static_cast<uint64_t>(i) + 1).run());
    if (i < warm_ups) continue;
    result.samples_ns.push_back(sample.ns);
    result.samples_ts.push_back(static_cast<double>(sample.tokens) * 1e9 /
                                static_cast<double>(std::max<int64_t>(sample.ns, 1)));
  }
  return result;
}

}  // namespace headrace
