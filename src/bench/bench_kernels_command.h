// `headrace bench kernels`: what a model's steps are made of, op by op, against what the machine
// can do.
#pragma once

#include "cli/command_line.h"

namespace headrace {

SubcommandRun define_bench_kernels(CLI::App& app);

}  // namespace headrace
