// bench serve: load on a running server over HTTP, as `vllm bench serve` does.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_serve(CLI::App& app);

}  // namespace headrace
