// bench: prefill and decode speed, reported as llama-bench does.
#pragma once

#include "apps/subcommand.h"

namespace headrace {

SubcommandRun define_bench(CLI::App& app);

}  // namespace headrace
