// chat: a conversation in the terminal.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_chat(CLI::App& app);

}  // namespace headrace
