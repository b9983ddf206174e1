#include "apps/man_command.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/version.h"

namespace headrace {
namespace {

constexpr const char* kManFooter = R"(Examples:
  headrace man | man -l -
  headrace man bench serve | man -l -
  headrace man > ~/.local/share/man/man1/headrace.1)";

// Text that roff takes as it is.
std::string roff_text(std::string_view text) {
  std::string escaped;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// "--model", "-m" PATH
std::string roff_flag(const FlagWords& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back("\\fB" + roff_text(name) + "\\fR");
  std::string text = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (flag.takes_value() && !flag.positional) text += " \\fI" + roff_text(flag.value) + "\\fR";
  text += "\n" + roff_text(flag.description);
  if (!flag.choices.empty()) {
    text += roff_text(fmt::format(": {}", fmt::join(flag.choices, ", ")));
  }
  return text + "\n";
}

std::string roff_flags(const CommandWords& command, std::string_view heading) {
  std::string text;
  std::vector<std::string> groups;
  for (const FlagWords& flag : command.flags) {
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) {
      groups.push_back(flag.group);
    }
  }
  for (const std::string& group : groups) {
    text += fmt::format(".{} \"{}\"\n", heading, roff_text(group));
    for (const FlagWords& flag : command.flags) {
      if (flag.group == group) text += roff_flag(flag);
    }
  }
  return text;
}

std::string roff_examples(const CommandWords& command) {
  if (command.footer.empty()) return {};
  return ".PP\n.nf\n" + roff_text(command.footer) + "\n.fi\n";
}

std::string positionals_of(const CommandWords& command) {
  std::string text;
  for (const FlagWords& flag : command.flags) {
    if (flag.positional) text += fmt::format(" [\\fI{}\\fR]", roff_text(flag.names[0]));
  }
  return text;
}

std::string synopsis(const CommandWords& command) {
  return fmt::format("\\fBheadrace {}\\fR{} [\\fIflags\\fR]\n", roff_text(command.name),
                     positionals_of(command));
}

std::string title_line(std::string_view name) {
  return fmt::format(".TH \"{}\" 1 \"\" \"headrace {}\" \"Headrace\"\n", name, program_version());
}

std::string page_of_all(const std::vector<CommandWords>& commands) {
  std::string page = title_line("HEADRACE");
  page += ".SH NAME\nheadrace \\- runs and serves large language models\n";
  page += ".SH SYNOPSIS\n.B headrace\n\\fIcommand\\fR [\\fIflags\\fR]\n";
  page += ".SH COMMANDS\n";
  for (const CommandWords& command : commands) {
    page +=
        fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff_text(command.name), roff_text(command.summary));
  }
  for (const CommandWords& command : commands) {
    page += fmt::format(".SH \"{}\"\n{}.PP\n{}.\n", roff_text(command.name), synopsis(command),
                        roff_text(command.summary));
    page += roff_flags(command, "SS") + roff_examples(command);
  }
  page +=
      ".SH ENVIRONMENT\n.TP\n\\fBHEADRACE_MODEL\\fR\nThe model where none is named.\n"
      ".TP\n\\fBHEADRACE_API_KEY\\fR\nThe key of a server, or for one.\n"
      ".TP\n\\fBHEADRACE_\\fIFLAG\\fR\nAny flag of a command that takes a model, as "
      "HEADRACE_MAX_MODEL_LEN=4k.\n"
      ".TP\n\\fBHF_HOME\\fR, \\fBHF_HUB_CACHE\\fR\nWhere models of the Hugging Face hub are kept.\n"
      ".TP\n\\fBHF_TOKEN\\fR, \\fBHF_ENDPOINT\\fR, \\fBHF_HUB_OFFLINE\\fR\nHow they are fetched.\n"
      ".TP\n\\fBNO_COLOR\\fR\nIf set, answers are not rendered.\n"
      ".SH FILES\n.TP\n\\fI$XDG_STATE_HOME/headrace\\fR\nThe history of a chat, and the chats that "
      "were saved.\n";
  return page;
}

std::string page_of_one(const CommandWords& command) {
  std::string name = "headrace-" + command.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  std::string page = title_line(roff_text(name));
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff_text(name), roff_text(command.summary));
  page += ".SH SYNOPSIS\n" + synopsis(command);
  return page + roff_flags(command, "SH") + ".SH EXAMPLES\n" + roff_examples(command);
}

}  // namespace

std::string manual_page(const std::vector<CommandWords>& commands) {
  return commands.size() == 1 ? page_of_one(commands.front()) : page_of_all(commands);
}

SubcommandRun define_man(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("command", *words, "Of this command alone: \"serve\", \"bench serve\"")
      ->group("Flags");
  app.footer(kManFooter);
  return [words]() -> Result<int> {
    const std::vector<CommandWords> commands = all_command_words();
    if (words->empty()) {
      fmt::print("{}", manual_page(commands));
      return 0;
    }
    const std::string name = fmt::format("{}", fmt::join(*words, " "));
    for (const CommandWords& command : commands) {
      if (command.name != name) continue;
      fmt::print("{}", manual_page({command}));
      return 0;
    }
    return invalid_argument(fmt::format("'{}' is no command (see 'headrace --help')", name));
  };
}

}  // namespace headrace
