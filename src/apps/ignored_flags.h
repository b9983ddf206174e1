// Flags of other servers that mean nothing here: accepted, so that scripts keep working, and told
// in one line on stderr when used.
#pragma once

#include <CLI/CLI.hpp>

namespace headrace {

// Adds each of them, hidden from help, where `app` has no flag of that name.
void add_ignored_flags(CLI::App& app);

}  // namespace headrace
