// Every subcommand with its flags as a person types them, from the program's own table of
// subcommands: what completions and manual pages are made of, so that no flag can be missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct FlagWords {
  std::vector<std::string> names;  // as typed: "--model", "-m"; of a positional its name alone
  std::vector<std::string> choices;
  std::string value;        // "FILE"; empty: it takes none
  std::string description;  // with its default
  std::string group;
  bool positional = false;

  bool takes_value() const { return !value.empty(); }
};

struct CommandWords {
  std::string name, summary;             // "bench latency"
  std::vector<std::string> first_words;  // values of the first argument that is no flag
  std::vector<FlagWords> flags;          // in the order of the help, without hidden ones
  std::string footer;                    // examples

  bool has_two_words() const { return name.find(' ') != name.npos; }
};

// In the order of help.
std::vector<CommandWords> all_command_words();

}  // namespace headrace
