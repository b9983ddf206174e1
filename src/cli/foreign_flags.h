// Flags of vLLM, SGLang and llama.cpp that scripts have and that this program lacks. What changes
// no answer is accepted, and told in one line on stderr; what asks for the only thing there is, is
// accepted in silence; what would change answers or routes is an error that says why.
#pragma once

#include <CLI/CLI.hpp>

namespace headrace {

// Adds each of them, hidden from help, where `app` has no flag of that name.
void add_foreign_flags(CLI::App& app);

}  // namespace headrace
