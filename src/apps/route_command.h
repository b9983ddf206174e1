// route: one address in front of many servers.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_route(CLI::App& app);

}  // namespace headrace
