// `headrace bench host`: the engine thread's time of a step, on a device that answers at once.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_host(CLI::App& app);

}  // namespace headrace
