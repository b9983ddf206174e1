// pull, list, show, rm, search: the models of this machine, and how they come to it.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_pull(CLI::App& app);
SubcommandRun define_list(CLI::App& app);
SubcommandRun define_show(CLI::App& app);
SubcommandRun define_rm(CLI::App& app);
SubcommandRun define_search(CLI::App& app);

}  // namespace headrace
