// bench throughput: many requests at once, offline, as `vllm bench throughput` does.
// bench latency: a fixed number of sequences together, the time of a step.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_throughput(CLI::App& app);
SubcommandRun define_bench_latency(CLI::App& app);

}  // namespace headrace
