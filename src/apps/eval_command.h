// eval: how well a model predicts given text.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_eval(CLI::App& app);

}  // namespace headrace
