#include "apps/command_words.h"

#include <memory>

#include <fmt/format.h>

#include "apps/subcommands.h"
#include "cli/command_line.h"

namespace headrace {
namespace {

FlagWords flag_words(const CLI::Option& option) {
  FlagWords words;
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  words.positional = words.names.empty();
  if (words.positional) words.names.push_back(option.get_name(true));
  words.choices = choices_of(option);
  words.group = option.get_group();
  words.description = option.get_description();
  const std::string standard = option.get_default_str();
  const bool told = words.description.find("default") != std::string::npos;
  const bool single = option.get_items_expected_max() == 1;
  if (single && !standard.empty() && !told) {
    words.description += fmt::format(" (default {})", standard);
  }
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();  // "N:INT in [1 - 9]"
    words.value = words.choices.empty() ? type.substr(0, type.find(':')) : "NAME";
    if (words.value.empty()) words.value = "VALUE";
  }
  return words;
}

CommandWords command_words(const Subcommand& subcommand) {
  const std::unique_ptr<CLI::App> app = make_app(subcommand);
  const SubcommandRun run = subcommand.define(*app);  // owns what the flags are bound to
  CommandWords words{.name = std::string(subcommand.name),
                     .summary = std::string(subcommand.summary),
                     .first_words = {},
                     .flags = {},
                     .footer = app->get_footer()};
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    words.flags.push_back(flag_words(*option));
    const FlagWords& flag = words.flags.back();
    if (flag.positional && words.first_words.empty()) words.first_words = flag.choices;
  }
  return words;
}

}  // namespace

std::vector<CommandWords> all_command_words() {
  std::vector<CommandWords> commands;
  for (const Subcommand& subcommand : subcommands()) {
    commands.push_back(command_words(subcommand));
    const std::string& name = commands.back().name;
    const size_t space = name.find(' ');
    if (space == name.npos) continue;
    // The second word of "bench latency" is a first argument of "bench", which stands before it.
    for (CommandWords& first : commands) {
      if (first.name == name.substr(0, space)) first.first_words.push_back(name.substr(space + 1));
    }
  }
  return commands;
}

}  // namespace headrace
