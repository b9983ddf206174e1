#include "apps/completion_command.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/command_words.h"
#include "cli/command_line.h"

namespace headrace {
namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  source <(headrace completions bash)
  headrace completions zsh > ~/.zfunc/_headrace
  headrace completions fish > ~/.config/fish/completions/headrace.fish)";

// The names of those that may be a program's first argument.
std::string command_names(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) {
    if (!command.has_two_words()) names.push_back(command.name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// 'bench latency'|'bench serve'
std::string two_word_names(const std::vector<CommandWords>& commands, std::string_view between) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) {
    if (command.has_two_words()) names.push_back("'" + command.name + "'");
  }
  return fmt::format("{}", fmt::join(names, between));
}

std::string all_flag_names(const CommandWords& command) {
  std::vector<std::string> names;
  for (const FlagWords& flag : command.flags) {
    if (!flag.positional) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// One `case` arm for each flag with a closed list of values.
std::string bash_choices(const CommandWords& command) {
  std::string arms;
  for (const FlagWords& flag : command.flags) {
    if (flag.choices.empty() || flag.positional) continue;
    arms += fmt::format("        '{}:{}') COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                        command.name, fmt::join(flag.names, fmt::format("'|'{}:", command.name)),
                        fmt::join(flag.choices, " "));
  }
  return arms;
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string choices, flags;
  for (const CommandWords& command : commands) {
    choices += bash_choices(command);
    flags += fmt::format("        '{}') flags='{}' words='{}' ;;\n", command.name,
                         all_flag_names(command), fmt::join(command.first_words, " "));
  }
  return fmt::format(R"(_headrace() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local command=${{COMP_WORDS[1]}} flags= words= first=2
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W '{} --help --version' -- "$word")); return
    fi
    if [[ $COMP_CWORD -gt 2 ]]; then
        case "$command ${{COMP_WORDS[2]}}" in
        {}) command="$command ${{COMP_WORDS[2]}}" first=3 ;;
        esac
    fi
    case "$command:$before" in
{}    esac
    case "$command" in
{}    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
    elif [[ -n $words && $COMP_CWORD -eq $first ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _headrace headrace
)",
                     command_names(commands), two_word_names(commands, "|"), choices, flags);
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
  if (!flag.choices.empty()) {
    value = fmt::format(":value:({})", fmt::join(flag.choices, " "));
  } else if (flag.takes_value()) {
    value = ":value:_files";
  }
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
    if (!command.has_two_words()) {
      names += fmt::format("        '{}:{}'\n", command.name, zsh_quoted(command.summary));
    }
    arms += fmt::format("        '{}')\n            _arguments -s", command.name);
    for (const FlagWords& flag : command.flags) {
      if (!flag.positional) arms += zsh_flag(flag);
    }
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
    if (( CURRENT > 3 )); then
        case "$words[2] $words[3]" in
        {}) command="$words[2] $words[3]"; shift words; (( CURRENT-- )) ;;
        esac
    fi
    shift words
    (( CURRENT-- ))
    case $command in
{}    esac
}}
# Autoloaded from a file named _headrace, or sourced.
if [[ $funcstack[1] == _headrace ]]; then _headrace "$@"; else compdef _headrace headrace; fi
)",
                     names, two_word_names(commands, "|"), arms);
}

std::string fish_quoted(const std::string& text) {
  std::string quoted;
  for (char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted;
}

// Where the command line is one of this subcommand.
std::string fish_condition(const CommandWords& command) {
  return fmt::format("complete -c headrace -n 'test (__headrace_command) = \"{}\"'", command.name);
}

std::string fish_flag(const CommandWords& command, const FlagWords& flag) {
  std::string line = fish_condition(command);
  for (const std::string& name : flag.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!flag.choices.empty()) {
    line += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
  } else if (flag.takes_value()) {
    line += " -r";
  }
  return line + fmt::format(" -d '{}'\n", fish_quoted(flag.description));
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string script = fmt::format(R"(function __headrace_command
    set -l words (commandline -opc)
    set -l two "$words[2] $words[3]"
    switch "$two"
        case {}
            echo "$two"
        case '*'
            echo "$words[2]"
    end
end
)",
                                   two_word_names(commands, " "));
  for (const CommandWords& command : commands) {
    if (!command.has_two_words()) {
      script += fmt::format("complete -c headrace -n __fish_use_subcommand -f -a {} -d '{}'\n",
                            command.name, fish_quoted(command.summary));
    }
    for (const FlagWords& flag : command.flags) {
      if (!flag.positional) script += fish_flag(command, flag);
    }
    if (!command.first_words.empty()) {
      script += fish_condition(command) +
                fmt::format(" -f -a '{}'\n", fmt::join(command.first_words, " "));
    }
  }
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
    const std::vector<CommandWords> commands = all_command_words();
    fmt::print("{}", *shell == "bash"  ? bash_script(commands)
                     : *shell == "zsh" ? zsh_script(commands)
                                       : fish_script(commands));
    return 0;
  };
}

}  // namespace headrace
