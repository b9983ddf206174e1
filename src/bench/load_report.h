// What a run of the LoadClient amounts to, in the words of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "bench/load_client.h"

namespace headrace {

// Of values in milliseconds; all 0 where there are none.
struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};
Percentiles percentiles_of(const std::vector<double>& values);

struct LoadReport {
  int64_t completed = 0, failed = 0;
  int64_t refused = 0;      // told 429; not among those that failed
  std::string first_error;  // of those that failed
  double seconds = 0;       // first request sent to last byte
  int64_t prompt_tokens = 0, output_tokens = 0;
  Percentiles ttft_ms, tpot_ms, itl_ms, e2el_ms;
  Percentiles refusal_ms;     // from sending to having been refused
  Percentiles retry_after_s;  // that they were told

  double request_rate() const { return per_second(completed); }
  double output_rate() const { return per_second(output_tokens); }
  double per_second(int64_t count) const {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  }
};
// What a request must keep to count as answered in time; milliseconds, no bound unless said.
struct LatencyTargets {
  double ttft_ms = kNone, tpot_ms = kNone, e2el_ms = kNone;
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  bool any() const { return ttft_ms < kNone || tpot_ms < kNone || e2el_ms < kNone; }
};
// From "ttft:500": sets that target. kInvalidArgument: another name, or no time above 0.
Status parse_latency_target(std::string_view text, LatencyTargets& targets);
// How many were answered and kept all of them.
int64_t count_in_time(std::span<const LoadOutcome> outcomes, const LatencyTargets& targets);

LoadReport summarise(std::span<const LoadOutcome> outcomes);

Json::Object to_json(const LoadReport& report);
std::string to_text(const LoadReport& report);

}  // namespace headrace
