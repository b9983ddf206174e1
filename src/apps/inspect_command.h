// inspect: what a model file holds, without loading it.
#pragma once

#include "apps/subcommand.h"

namespace headrace {

SubcommandRun define_inspect(CLI::App& app);

}  // namespace headrace
