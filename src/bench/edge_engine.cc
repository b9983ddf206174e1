#include "bench/edge_engine.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 100us;  // of a step that waits for clients

int64_t thread_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

EdgeEngine::EdgeEngine(EdgeEngineOptions options) : options_(std::move(options)) {
  engine_options_.vocab_size = options_.vocab_size;
  engine_options_.scheduler.max_model_len = options_.steps + (1 << 16);
  engine_options_.scheduler.groups = {{.block_tokens = 16}};
  engine_options_.scheduler.block_count = 1;
  thread_ = std::thread([this] { loop(); });
}

EdgeEngine::~EdgeEngine() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);  // who waits has looked, or will be woken
  }
  wake_.notify_all();
  thread_.join();
}

Status EdgeEngine::submit(Request request, EmissionSink sink) {
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back({request.id, std::move(sink)});
  }
  wake_.notify_all();
  return ok_status();
}

void EdgeEngine::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(request);
}

void EdgeEngine::loop() {
  if (!wait_until_all_are_there()) return;
  while (!options_.may_step(0)) {
    if (stopping_) return;
    std::this_thread::sleep_for(1ms);
  }
  const int64_t begin_ns = SystemClock().now_ns();
  for (int64_t i = 0; i < options_.steps; ++i) {
    if (!wait_for_step(i, begin_ns)) return;
    step(i);
    cpu_ns_ = thread_cpu_ns();
  }
}

// Requests are admitted as they come, so that the heads of their answers leave. False: the end.
bool EdgeEngine::wait_until_all_are_there() {
  while (live_.size() < static_cast<size_t>(options_.streams)) {
    std::vector<Live> arrived;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !arrived_.empty(); });
      if (stopping_) return false;
      arrived.swap(arrived_);
    }
    for (Live& each : arrived) {
      each.sink({.request = each.id, .admitted = true});
      live_.push_back(std::move(each));
    }
  }
  return true;
}

// A step that is late is made at once, and those behind it keep their times.
bool EdgeEngine::wait_for_step(int64_t step, int64_t begin_ns) {
  if (options_.steps_per_second > 0) {
    const auto at =
        static_cast<int64_t>(static_cast<double>(step) / options_.steps_per_second * 1e9);
    const int64_t left = begin_ns + at - SystemClock().now_ns();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  } else {
    while (!stopping_ && !options_.may_step(step)) std::this_thread::sleep_for(kPoll);
  }
  return !stopping_;
}

void EdgeEngine::step(int64_t step) {
  std::vector<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
  }
  for (const RequestId id : cancelled) {
    std::erase_if(live_, [id](const Live& live) { return live.id == id; });
  }
  const bool last = step + 1 == options_.steps;
  Emission emission;
  emission.finish = last ? FinishReason::kLength : FinishReason::kNone;
  options_.on_step(step);
  for (const Live& live : live_) {
    const uint64_t bits =
        counter_hash(live.id.value, 0, static_cast<uint64_t>(step), RngPurpose::kSample);
    emission.request = live.id;
    emission.tokens = {options_.tokens[bits % options_.tokens.size()]};
    live.sink(emission);
  }
  if (last) live_.clear();
}

}  // namespace headrace
