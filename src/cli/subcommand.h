// A subcommand of the program: its name, its flags, and what it does.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.h"

namespace CLI {
class App;
}

namespace headrace {

// Runs after the flags were read; the exit code, or a Status that main() prints (exit code 1).
using SubcommandRun = std::function<Result<int>()>;

struct Subcommand {
  std::string_view name;     // one word, or two: "bench", "bench latency"
  std::string_view summary;  // one line, for the overview
  // Adds the flags, their groups and the footer to `app`. What it returns owns the variables that
  // the flags write to.
  SubcommandRun (*define)(CLI::App& app);
};

}  // namespace headrace
