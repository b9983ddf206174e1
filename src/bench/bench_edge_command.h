// `headrace bench edge`: what HTTP, text and event streams cost beside an engine that costs
// nothing.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_edge(CLI::App& app);

}  // namespace headrace
