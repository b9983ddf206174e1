#include "apps/completion_command.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/subcommands.h"
#include "cli/command_line.h"

namespace headrace {
namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  source <(headrace completion bash)
  headrace completion zsh > ~/.zfunc/_headrace
  headrace completion fish > ~/.config/fish/completions/headrace.fish)";

struct FlagWords {
  std::vector<std::string> names;  // as typed: "--model", "-m"
  std::vector<std::string> choices;
  std::string description;
  bool takes_value = false;
  bool takes_file = false;
};

struct CommandWords {
  std::string name, summary;
  std::vector<std::string> first_words;  // values of the first argument that is no flag
  std::vector<FlagWords> flags;
};

FlagWords flag_words(const CLI::Option& option) {
  FlagWords words;
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  words.choices = choices_of(option);
  words.description = option.get_description();
  words.takes_value = option.get_items_expected_max() > 0;
  words.takes_file = words.takes_value && words.choices.empty();
  return words;
}

// What help shows of a subcommand.
void append_words(const CLI::App& app, CommandWords& words) {
  for (const CLI::Option* option : app.get_options()) {
    const bool named = !option->get_lnames().empty() || !option->get_snames().empty();
    if (named && !option->get_group().empty()) words.flags.push_back(flag_words(*option));
    if (!named && words.first_words.empty()) words.first_words = choices_of(*option);
  }
}

std::vector<CommandWords> all_words() {
  std::vector<CommandWords> commands;
  for (const Subcommand& subcommand : subcommands()) {
    // The second word of "bench latency" is a first argument of "bench", which stands before it.
    if (const size_t space = subcommand.name.find(' '); space != std::string_view::npos) {
      commands.back().first_words.emplace_back(subcommand.name.substr(space + 1));
      continue;
    }
    const std::unique_ptr<CLI::App> app = make_app(subcommand);
    const SubcommandRun run = subcommand.define(*app);
    CommandWords words{.name = std::string(subcommand.name),
                       .summary = std::string(subcommand.summary)};
    append_words(*app, words);
    commands.push_back(std::move(words));
  }
  return commands;
}

std::string command_names(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string all_flag_names(const CommandWords& command) {
  std::vector<std::string> names;
  for (const FlagWords& flag : command.flags) {
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// One `case` arm for each flag with a closed list of values.
std::string bash_choices(const CommandWords& command) {
  std::string arms;
  for (const FlagWords& flag : command.flags) {
    if (flag.choices.empty()) continue;
    arms += fmt::format("        {}:{}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                        command.name, fmt::join(flag.names, fmt::format("|{}:", command.name)),
                        fmt::join(flag.choices, " "));
  }
  return arms;
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string choices, flags;
  for (const CommandWords& command : commands) {
    choices += bash_choices(command);
    flags += fmt::format("        {}) flags='{}' words='{}' ;;\n", command.name,
                         all_flag_names(command), fmt::join(command.first_words, " "));
  }
  return fmt::format(R"(_headrace() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local command=${{COMP_WORDS[1]}} flags= words=
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W '{} --help --version' -- "$word")); return
    fi
    case $command:$before in
{}    esac
    case $command in
{}    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
    elif [[ -n $words && $COMP_CWORD -eq 2 ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _headrace headrace
)",
                     command_names(commands), choices, flags);
}

// Quotes for a single-quoted zsh _arguments specification.
std::string zsh_quoted(const std::string& text) {
  std::string quoted;
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':') quoted += '\\';
      quoted += c;
    }
  }
  return quoted;
}

std::string zsh_flag(const FlagWords& flag) {
  std::string value;
  if (!flag.choices.empty()) value = fmt::format(":value:({})", fmt::join(flag.choices, " "));
  if (flag.takes_file) value = ":value:_files";
  const std::string detail = fmt::format("[{}]{}", zsh_quoted(flag.description), value);
  std::string specifications;
  for (const std::string& name : flag.names) {
    specifications += fmt::format(" \\\n                '{}{}'", name, detail);
  }
  return specifications;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string names, arms;
  for (const CommandWords& command : commands) {
    names += fmt::format("        '{}:{}'\n", command.name, zsh_quoted(command.summary));
    arms += fmt::format("        {})\n            _arguments -s", command.name);
    for (const FlagWords& flag : command.flags) arms += zsh_flag(flag);
    if (!command.first_words.empty()) {
      arms +=
          fmt::format(" \\\n                '1:value:({})'", fmt::join(command.first_words, " "));
    }
    arms += " \\\n                '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef headrace
_headrace() {{
    local -a commands=(
{}    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{}    esac
}}
# Autoloaded from a file named _headrace, or sourced.
if [[ $funcstack[1] == _headrace ]]; then _headrace "$@"; else compdef _headrace headrace; fi
)",
                     names, arms);
}

std::string fish_quoted(const std::string& text) {
  std::string quoted;
  for (char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted;
}

std::string fish_flag(const CommandWords& command, const FlagWords& flag) {
  std::string line =
      fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}'", command.name);
  for (const std::string& name : flag.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!flag.choices.empty()) line += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
  if (flag.takes_file) line += " -r";
  return line + fmt::format(" -d '{}'\n", fish_quoted(flag.description));
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string script;
  for (const CommandWords& command : commands) {
    script += fmt::format("complete -c headrace -n __fish_use_subcommand -f -a {} -d '{}'\n",
                          command.name, fish_quoted(command.summary));
    for (const FlagWords& flag : command.flags) script += fish_flag(command, flag);
  }
  script +=
      "complete -c headrace -n '__fish_seen_subcommand_from completion' -f "
      "-a 'bash zsh fish'\n";
  return script;
}

}  // namespace

SubcommandRun define_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  add_choice(app, "shell", *shell, {"bash", "zsh", "fish"}, "The shell: bash, zsh or fish")
      ->required()
      ->group("Flags");
  app.footer(kCompletionFooter);
  return [shell]() -> Result<int> {
    const std::vector<CommandWords> commands = all_words();
    fmt::print("{}", *shell == "bash"  ? bash_script(commands)
                     : *shell == "zsh" ? zsh_script(commands)
                                       : fish_script(commands));
    return 0;
  };
}

}  // namespace headrace
