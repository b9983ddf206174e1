// --config FILE: flags from a YAML file, as vLLM reads them. A mapping of flag names (either
// spelling, without dashes) to values; the command line goes before it. A list is given to a flag
// that takes many values, and to others, as a mapping is, in JSON. JSON files are YAML too.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace headrace {

// Adds --config, which takes the other flags of `app`. REQUIRES: `app` outlives its parsing.
void add_config_flag(CLI::App& app);

struct ConfigEntry {
  std::string name;                 // as written
  std::vector<std::string> values;  // of a list each; of a mapping one, in JSON
  std::string json;                 // the value as one JSON text
  int line = 0;                     // from 1
};

// The entries of a file in their order. Errors name the line. Bounds: 1 MiB of text, and of values,
// which aliases can make larger than the text.
Result<std::vector<ConfigEntry>> parse_config(std::string_view yaml);

}  // namespace headrace
