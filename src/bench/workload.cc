#include "bench/workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tensor/allocation_count.h"

namespace headrace {
namespace {

constexpr int64_t kItemTokensMax = 1 << 24;

// What the sinks of a run write and the bench thread waits for.
class RunRecord {
 public:
  explicit RunRecord(size_t requests) : times_(requests), start_ns_(clock_.now_ns()) {}

  // Waits until `seconds` after the start. Before the request is submitted.
  void wait_until(double seconds, size_t request) {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds - now()));
    const double submitted = now();
    std::lock_guard lock(mutex_);
    times_[request].submitted = submitted;
  }

  void on_emission(size_t request, const Emission& emission) {
    const double now = this->now();
    std::lock_guard lock(mutex_);
    WorkloadTimes& times = times_[request];
    if (!emission.tokens.empty()) {
      if (times.tokens == 0) {
        times.first_token = now;
      } else {
        times.gaps.push_back(static_cast<float>(now - times.last_token));
      }
      times.last_token = now;
      times.tokens += static_cast<int32_t>(emission.tokens.size());
    }
    if (emission.finish != FinishReason::kNone && ++finished_ == times_.size()) done_.notify_one();
  }

  std::vector<WorkloadTimes> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return finished_ == times_.size(); });
    return times_;
  }

 private:
  double now() const { return static_cast<double>(clock_.now_ns() - start_ns_) * 1e-9; }

  const SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<WorkloadTimes> times_;
  size_t finished_ = 0;
  const int64_t start_ns_;
};

// All that are loaded: requests have them in turn.
std::vector<std::shared_ptr<const Adapter>> adapters_of(ModelStack& stack) {
  std::vector<std::shared_ptr<const Adapter>> adapters;
  if (stack.adapters() == nullptr) return adapters;
  for (const auto& entry : stack.adapters()->list()) adapters.push_back(entry.adapter);
  return adapters;
}

Request random_request(Engine& engine, const WorkItem& item, Rng& rng) {
  Request request{.id = engine.next_request_id()};
  const auto vocabulary = static_cast<uint64_t>(engine.options().vocab_size);
  for (int32_t i = 0; i < item.prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng.below(vocabulary)));
  }
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = item.output;
  request.background = item.background;
  return request;
}

}  // namespace

Result<std::vector<WorkItem>> read_workload(const Json& json, std::string_view name) {
  const Json* list = json.is_object() ? json.find("requests") : &json;
  if (list == nullptr || !list->is_array()) {
    return invalid_argument(
        fmt::format("{}: expected [[prompt, output], ...] or {{\"requests\": ...}}", name));
  }
  std::vector<WorkItem> items;
  for (const Json& entry : list->as_array()) {
    const auto length = [&](size_t i) -> int64_t {
      if (!entry.is_array() || entry.as_array().size() != 2) return 0;
      const Json& value = entry.as_array()[i];
      return value.is_int() ? value.as_int() : 0;
    };
    if (length(0) < 1 || length(1) < 1 || length(0) > kItemTokensMax ||
        length(1) > kItemTokensMax) {
      return invalid_argument(
          fmt::format("{}: request {}: expected [prompt tokens, output tokens], each at least 1",
                      name, items.size()));
    }
    items.push_back(
        {.prompt = static_cast<int32_t>(length(0)), .output = static_cast<int32_t>(length(1))});
  }
  if (items.empty()) return invalid_argument(fmt::format("{}: no requests", name));
  return items;
}

Result<std::vector<WorkItem>> read_workload_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{}: cannot be opened", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = parse_json(text);
  if (!json.ok()) return json.status().with_context(path);
  return read_workload(*json, path);
}

Result<WorkloadResult> run_workload(ModelStack& stack, std::span<const WorkItem> items,
                                    uint64_t seed) {
  Engine& engine = stack.engine();
  Rng rng(seed);
  std::vector<Request> requests;
  WorkloadResult result;
  const auto adapters = adapters_of(stack);
  for (const WorkItem& item : items) {
    Request& request = requests.emplace_back(random_request(engine, item, rng));
    if (!adapters.empty()) {
      request.adapter_weights = adapters[(requests.size() - 1) % adapters.size()];
    }
    result.prompt_tokens += item.prompt;
  }
  const EngineStats before = engine.stats();
  const int64_t allocations = allocation_count();
  const auto record = std::make_shared<RunRecord>(items.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    record->wait_until(items[i].at_seconds, i);
    HR_RETURN_IF_ERROR(engine.submit(std::move(requests[i]), [record, i](const Emission& emission) {
      record->on_emission(i, emission);
    }));
  }
  result.requests = record->wait();
  for (size_t i = 0; i < items.size(); ++i) {
    const WorkloadTimes& times = result.requests[i];
    if (times.tokens != items[i].output) {
      return internal_error(
          fmt::format("request {} gave {} tokens instead of {}", i, times.tokens, items[i].output));
    }
    result.output_tokens += times.tokens;
    result.seconds = std::max(result.seconds, times.last_token);
  }
  const EngineStats after = engine.stats();
  result.steps = after.steps - before.steps;
  result.computed_tokens = after.step_tokens_total - before.step_tokens_total;
  result.ended_row_tokens = after.scheduler.ended_row_tokens - before.scheduler.ended_row_tokens;
  result.idle_row_steps = after.scheduler.idle_row_steps - before.scheduler.idle_row_steps;
  result.recomputed_tokens = after.scheduler.recomputed_tokens - before.scheduler.recomputed_tokens;
  result.dropped_tokens = after.scheduler.dropped_tokens - before.scheduler.dropped_tokens;
  result.kv_slots = after.kv_slots_total - before.kv_slots_total;
  result.allocations = allocation_count() - allocations;
  result.background_room_seconds =
      after.scheduler.background_room_seconds - before.scheduler.background_room_seconds;
  result.background_used_seconds =
      after.scheduler.background_used_seconds - before.scheduler.background_used_seconds;
  result.background_room_tokens =
      after.scheduler.background_room_tokens - before.scheduler.background_room_tokens;
  result.background_used_tokens =
      after.scheduler.background_used_tokens - before.scheduler.background_used_tokens;
  result.host = after.host - before.host;
  result.device_seconds = after.device_seconds_total - before.device_seconds_total;
  result.device_gap_seconds = after.device_gap_seconds_total - before.device_gap_seconds_total;
  return result;
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size())) - 1;
  const auto index = static_cast<size_t>(std::max(rank, 0.0));
  return values[std::min(index, values.size() - 1)];
}

}  // namespace headrace
