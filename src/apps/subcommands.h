// Every subcommand of the program: its one table.
#pragma once

#include <span>
#include <string_view>

#include "cli/subcommand.h"

namespace headrace {

// Every subcommand, in the order in which help shows them.
std::span<const Subcommand> subcommands();
const Subcommand* find_subcommand(std::string_view name);

}  // namespace headrace
