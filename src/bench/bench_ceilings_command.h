// bench ceilings: what this machine can do at most, to judge speeds by.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_ceilings(CLI::App& app);

}  // namespace headrace
