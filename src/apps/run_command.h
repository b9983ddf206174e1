// run: one prompt in, one answer on stdout, as it comes.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_run(CLI::App& app);

}  // namespace headrace
