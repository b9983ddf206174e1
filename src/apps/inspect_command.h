// inspect: what a model file holds, without loading it.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_inspect(CLI::App& app);

}  // namespace headrace
