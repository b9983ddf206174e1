// bench: prefill and decode speed, reported as llama-bench does.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench(CLI::App& app);

}  // namespace headrace
