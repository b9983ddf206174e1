// completion: scripts that let shells complete the program's flags.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_completion(CLI::App& app);

}  // namespace headrace
