// Flags from the environment: HEADRACE_MAX_MODEL_LEN=4k is --max-model-len 4k, and LLAMA_ARG_*
// are read as llama-server reads them.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace headrace {

struct EnvironmentFlags {
  std::vector<std::string> arguments;
  std::vector<std::string> variables;  // that gave them
};

// Of the flags of `app` that `arguments` does not have: what stands on the command line goes before
// the environment, and that before a file of --config. Of a switch 1, true, on, yes and enabled are
// yes, 0, false, off, no and disabled no, and empty says nothing. None asks for help. A LLAMA_ARG_
// variable without a flag is told in a line on stderr; HEADRACE_ variables may be of other
// programs. Variables that have a meaning of their own (HEADRACE_MODEL, HEADRACE_API_KEY) are left
// to it.
EnvironmentFlags flags_of_environment(const CLI::App& app,
                                      const std::vector<std::string>& arguments);

// `arguments` with them, where they can take nothing else for their value: at the end, but before
// a "--".
std::vector<std::string> with_environment(const EnvironmentFlags& flags,
                                          std::vector<std::string> arguments);

}  // namespace headrace
