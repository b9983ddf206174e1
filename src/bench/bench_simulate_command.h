// bench simulate: policy against policy on a trace, in virtual time, through the real scheduler.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_simulate(CLI::App& app);

}  // namespace headrace
