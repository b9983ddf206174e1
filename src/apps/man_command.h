// man: the program's manual page.
#pragma once

#include <string>
#include <vector>

#include "apps/command_words.h"
#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_man(CLI::App& app);

// A page in the form of man(7), of all commands, or of one.
std::string manual_page(const std::vector<CommandWords>& commands);

}  // namespace headrace
