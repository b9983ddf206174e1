// top: a live view of a server.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_top(CLI::App& app);

}  // namespace headrace
