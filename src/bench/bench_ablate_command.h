// `headrace bench ablate ROW`: the same work with a technique on and off, taking turns in one run.
#pragma once

#include "cli/command_line.h"

namespace headrace {

SubcommandRun define_bench_ablate(CLI::App& app);

}  // namespace headrace
