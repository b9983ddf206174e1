#include "server/fake_engine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/rng.h"

namespace headrace {

FakeEngine::FakeEngine(FakeEngineOptions options) : options_(std::move(options)) {
  engine_options_.vocab_size = options_.vocab_size;
  engine_options_.scheduler.max_model_len = options_.max_model_len;
  engine_options_.scheduler.groups = {{.block_tokens = 16}};
  engine_options_.scheduler.block_count = 100;
  thread_ = std::thread([this] { loop(); });
}

FakeEngine::~FakeEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Status FakeEngine::submit(Request request, EmissionSink sink) {
  std::lock_guard lock(mutex_);
  if (throws_at_submit_) throw std::bad_alloc();
  if (draining_) return unavailable("draining");
  if (live_.size() >= static_cast<size_t>(options_.running_max + options_.queued_max)) {
    return exhausted("the queue is full");
  }
  ++submitted_;
  last_request_ = request;
  Live live;
  live.outputs.resize(static_cast<size_t>(request.sampling.n));
  live.finished.resize(static_cast<size_t>(request.sampling.n));
  live.scripted.resize(static_cast<size_t>(request.sampling.n));
  for (int32_t i = 0; request.constraint && i < request.sampling.n; ++i) {
    live.matchers.push_back(request.constraint->begin());
  }
  live.sink = std::move(sink);
  const RequestId id = request.id;
  live.request = std::move(request);
  live_.emplace(id, std::move(live));
  wake_.notify_all();
  return ok_status();
}

void FakeEngine::cancel(RequestId request) {
  std::lock_guard lock(mutex_);
  cancelled_ += live_.erase(request) > 0;
  if (throws_at_cancel_) throw std::bad_alloc();
}

void FakeEngine::cancel_choice(RequestId request, int32_t choice) {
  std::lock_guard lock(mutex_);
  const auto it = live_.find(request);
  if (it == live_.end()) return;
  it->second.finished[static_cast<size_t>(choice)] = true;
  const auto& finished = it->second.finished;
  if (std::find(finished.begin(), finished.end(), false) == finished.end()) live_.erase(it);
}

std::vector<PastStep> FakeEngine::recent_steps(uint64_t after) const {
  std::lock_guard lock(mutex_);
  std::vector<PastStep> found;
  for (const PastStep& step : steps_) {
    if (step.number > after) found.push_back(step);
  }
  return found;
}

void FakeEngine::set_steps(std::vector<PastStep> steps) {
  std::lock_guard lock(mutex_);
  steps_ = std::move(steps);
}

EngineStats FakeEngine::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats;
  const int32_t count = static_cast<int32_t>(live_.size());
  stats.scheduler.running = std::min(count, options_.running_max);
  stats.scheduler.waiting = count - stats.scheduler.running;
  stats.scheduler.blocks_total = 100;
  stats.scheduler.blocks_used = std::min(100, stats.scheduler.running);
  return stats;
}

void FakeEngine::pin_prefix(uint64_t pin, std::string, std::vector<TokenId> tokens,
                            std::function<void(int64_t)> done) {
  {
    std::lock_guard lock(mutex_);
    pinned_[pin] = tokens.size();
    pin_done_.emplace_back(std::move(done), tokens.size());
  }
  wake_.notify_all();
}

void FakeEngine::unpin_prefix(uint64_t pin) {
  std::lock_guard lock(mutex_);
  pinned_.erase(pin);
}

void FakeEngine::clear_prefix_cache(std::function<void(bool)> done) {
  std::unique_lock lock(mutex_);
  const bool idle = live_.empty();
  lock.unlock();
  if (idle) ++times_cleared_;
  done(idle);
}

std::map<uint64_t, size_t> FakeEngine::pinned() const {
  std::lock_guard lock(mutex_);
  return pinned_;
}

// What was pinned is told on the engine's thread, as the real one does. True: it let go of the
// lock.
bool FakeEngine::tell_pinned(std::unique_lock<std::mutex>& lock) {
  if (pin_done_.empty()) return false;
  const auto told = std::exchange(pin_done_, {});
  lock.unlock();
  for (const auto& [done, tokens] : told) done(static_cast<int64_t>(tokens));
  lock.lock();
  return true;
}

bool FakeEngine::drain(double) {
  std::lock_guard lock(mutex_);
  draining_ = true;
  return live_.empty();
}

void FakeEngine::set_paused(bool paused) {
  {
    std::lock_guard lock(mutex_);
    paused_ = paused;
  }
  wake_.notify_all();
}

Request FakeEngine::last_request() const {
  std::lock_guard lock(mutex_);
  return last_request_;
}

float FakeEngine::logprob(TokenId previous, TokenId token) {
  const uint64_t bits = counter_hash(1, static_cast<uint64_t>(previous),
                                     static_cast<uint64_t>(token), RngPurpose::kSimulation);
  return -static_cast<float>(10 * uniform01(bits));
}

TokenId FakeEngine::token_at(const Request& request, int32_t choice, size_t position) const {
  if (!options_.scripts.empty()) {
    const uint64_t number = request.id.value - 1;
    const std::vector<TokenId>& script = options_.scripts[number % options_.scripts.size()];
    return position < script.size() ? script[position] : options_.end_id;
  }
  uint64_t prompt_hash = 0;
  for (TokenId id : request.prompt) prompt_hash = mix64(prompt_hash ^ static_cast<uint64_t>(id));
  return static_cast<TokenId>(
      counter_hash(prompt_hash, static_cast<uint64_t>(choice), position, RngPurpose::kSample) %
      static_cast<uint64_t>(options_.vocab_size));
}

void FakeEngine::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (tell_pinned(lock) || admit(lock)) continue;
    if (live_.empty() || paused_) {
      wake_.wait(lock);
      continue;
    }
    step(lock);
    if (options_.step_seconds > 0) {
      wake_.wait_for(lock, std::chrono::duration<double>(options_.step_seconds),
                     [this] { return stopping_; });
    }
  }
}

// Also while paused: what runs has left the queue. True: it let go of the lock.
bool FakeEngine::admit(std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<EmissionSink, Emission>> out;
  int32_t running = 0;
  for (auto it = live_.begin(); it != live_.end() && running < options_.running_max;
       ++it, ++running) {
    if (std::exchange(it->second.admitted, true)) continue;
    out.emplace_back(it->second.sink, Emission{.request = it->first, .admitted = true});
  }
  if (out.empty()) return false;
  lock.unlock();
  for (auto& [sink, emission] : out) sink(emission);
  out.clear();
  lock.lock();
  return true;
}

// Sinks are called without the lock, as the engine's own would.
void FakeEngine::step(std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<EmissionSink, Emission>> out;
  int32_t running = 0;
  for (auto it = live_.begin(); it != live_.end() && running < options_.running_max; ++running) {
    Live& live = it->second;
    for (Emission& emission : step_request(live)) out.emplace_back(live.sink, std::move(emission));
    const bool done =
        std::find(live.finished.begin(), live.finished.end(), false) == live.finished.end();
    it = done ? live_.erase(it) : std::next(it);
  }
  lock.unlock();
  for (auto& [sink, emission] : out) sink(emission);
  out.clear();
  lock.lock();
}

std::vector<Emission> FakeEngine::step_request(Live& live) {
  std::vector<Emission> emissions;
  for (int32_t choice = 0; choice < live.request.sampling.n; ++choice) {
    if (!live.finished[static_cast<size_t>(choice)]) emissions.push_back(step_choice(live, choice));
  }
  if (live.scored || emissions.empty()) return emissions;
  live.scored = true;
  const std::vector<TokenId>& prompt = live.request.prompt;
  const int32_t top = live.request.sampling.prompt_logprobs;
  emissions[0].prompt_first = 1;
  for (size_t i = 1; top >= 0 && i < prompt.size(); ++i) {
    emissions[0].prompt_logprobs.push_back(logprobs_of(prompt[i - 1], prompt[i], top));
  }
  return emissions;
}

TokenId FakeEngine::next_token(Live& live, int32_t choice) const {
  const auto at = static_cast<size_t>(choice);
  TokenId token = token_at(live.request, choice, live.scripted[at]);
  if (live.matchers.empty()) return ++live.scripted[at], token;
  std::vector<uint32_t> allowed(static_cast<size_t>(options_.vocab_size + 31) / 32);
  const auto left =
      live.request.sampling.max_tokens - static_cast<int32_t>(live.outputs[at].size());
  live.matchers[at]->fill_mask(allowed, left);
  const auto may_come = [&](TokenId id) {
    return (allowed[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  if (may_come(token)) {
    ++live.scripted[at];
  } else {
    for (token = 0; token + 1 < options_.vocab_size && !may_come(token);) ++token;
  }
  live.matchers[at]->accept(token);
  return token;
}

Emission FakeEngine::step_choice(Live& live, int32_t choice) {
  const SamplingParams& sampling = live.request.sampling;
  std::vector<TokenId>& output = live.outputs[static_cast<size_t>(choice)];
  Emission emission;
  emission.request = live.request.id;
  emission.choice = choice;
  if (fault_ != FinishReason::kNone && fault_after_-- == 0) {
    emission.finish = fault_.exchange(FinishReason::kNone);
  } else if (sampling.max_tokens == 0) {
    emission.finish = FinishReason::kLength;
  } else {
    const TokenId token = next_token(live, choice);
    const TokenId previous = output.empty() ? live.request.prompt.back() : output.back();
    output.push_back(token);
    emission.tokens = {token};
    if (sampling.logprobs >= 0)
      emission.logprobs = {logprobs_of(previous, token, sampling.logprobs)};
    emission.finish = finish_of(live, output);
    const auto& stops = sampling.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) emission.stop_token = token;
  }
  if (emission.finish != FinishReason::kNone) live.finished[static_cast<size_t>(choice)] = true;
  return emission;
}

TokenLogprobs FakeEngine::logprobs_of(TokenId previous, TokenId token, int32_t top) const {
  TokenLogprobs result{token, logprob(previous, token), {}};
  for (TokenId id = 0; id < std::min(top, options_.vocab_size); ++id) {
    result.top.emplace_back(id, logprob(previous, id));
  }
  std::sort(result.top.begin(), result.top.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

FinishReason FakeEngine::finish_of(const Live& live, const std::vector<TokenId>& output) const {
  const SamplingParams& sampling = live.request.sampling;
  const auto& stops = sampling.stop_token_ids;
  const bool end =
      !options_.scripts.empty() && output.back() == options_.end_id && !sampling.ignore_eos;
  if (end || std::find(stops.begin(), stops.end(), output.back()) != stops.end()) {
    return FinishReason::kStop;
  }
  return output.size() >= static_cast<size_t>(sampling.max_tokens) ? FinishReason::kLength
                                                                   : FinishReason::kNone;
}

}  // namespace headrace
