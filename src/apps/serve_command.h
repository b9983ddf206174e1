// serve: the OpenAI API over HTTP.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_serve(CLI::App& app);

}  // namespace headrace
