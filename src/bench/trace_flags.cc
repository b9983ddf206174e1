#include "bench/trace_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {

void add_trace_flags(CLI::App& app, TraceFlags& flags, const std::string& group) {
  TraceOptions& options = flags.options;
  app.add_option("--trace", options.kind,
                 fmt::format("What arrives: {}; or a file, CSV or JSON lines (docs/traces.md)",
                             fmt::join(trace_kinds(), ", ")))
      ->type_name("KIND|FILE")
      ->group(group);
  add_choice(app, "--arrivals", options.arrivals, arrival_kinds(),
             "When a made trace's requests come: gamma in bursts (--burstiness), diurnal in tides")
      ->group(group);
  app.add_option("--burstiness", options.burstiness,
                 "Shape of gamma's gaps: 1 is Poisson, less comes in bursts")
      ->check(number_between(0.01, 100.0))
      ->type_name("X")
      ->group(group);
  app.add_option("--period", options.period_seconds, "Seconds of a tide of diurnal")
      ->check(number_above_zero())
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--max-model-len", options.max_model_len, "Tokens of the longest request")
      ->transform(size_between(256, 1 << 20))
      ->type_name("N")
      ->group(group);
  add_choice(app, "--too-long", flags.too_long, kTooLongNames,
             "What becomes of a file's requests that --max-model-len does not hold")
      ->group(group);
}

Result<std::vector<TraceRequest>> open_trace(const TraceFlags& flags) {
  return open_trace(flags.options, flags.too_long);
}

}  // namespace headrace
