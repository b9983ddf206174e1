// doctor: what this machine has, what that means, what to change.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_doctor(CLI::App& app);

}  // namespace headrace
