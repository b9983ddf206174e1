// recommend: which models fit here, and how fast they can be.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_recommend(CLI::App& app);

}  // namespace headrace
