#include "apps/man_command.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/version.h"

namespace headrace {
namespace {

constexpr const char* kManFooter = R"(Examples:
  headrace man | man -l -
  headrace man bench serve | man -l -
  headrace man --pages ~/.local/share/man/man1     (headrace.1, headrace-serve.1, ...))";

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

// "headrace-bench-serve"
std::string page_name(const CommandWords& command) {
  std::string name = "headrace-" + command.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string page_of_one(const CommandWords& command) {
  const std::string name = page_name(command);
  std::string page = title_line(roff_text(name));
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff_text(name), roff_text(command.summary));
  page += ".SH SYNOPSIS\n" + synopsis(command);
  page += roff_flags(command, "SH");
  if (!command.footer.empty()) page += ".SH EXAMPLES\n" + roff_examples(command);
  return page + ".SH SEE ALSO\n\\fBheadrace\\fR(1)\n";
}

Status write_page(const std::filesystem::path& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (file) return ok_status();
  return invalid_argument(
      fmt::format("--pages {}: cannot be written; name a folder of yours", path.string()));
}

Status write_pages(const std::filesystem::path& folder, const std::vector<CommandWords>& commands) {
  std::error_code error;  // of a folder that cannot be made; the file's says it
  std::filesystem::create_directories(folder, error);
  HR_RETURN_IF_ERROR(write_page(folder / "headrace.1", manual_page(commands)));
  for (const CommandWords& command : commands) {
    HR_RETURN_IF_ERROR(write_page(folder / (page_name(command) + ".1"), manual_page({command})));
  }
  return ok_status();
}

struct ManFlags {
  std::vector<std::string> words;  // of a command; empty: all
  std::string pages;               // folder
};

Result<int> print_or_write(const ManFlags& flags) {
  const std::vector<CommandWords> commands = all_command_words();
  if (!flags.pages.empty()) {
    if (!flags.words.empty()) {
      return invalid_argument("--pages writes the pages of all commands: name none");
    }
    HR_RETURN_IF_ERROR(write_pages(flags.pages, commands));
    return 0;
  }
  if (flags.words.empty()) {
    fmt::print("{}", manual_page(commands));
    return 0;
  }
  const std::string name = fmt::format("{}", fmt::join(flags.words, " "));
  for (const CommandWords& command : commands) {
    if (command.name != name) continue;
    fmt::print("{}", manual_page({command}));
    return 0;
  }
  return invalid_argument(fmt::format("'{}' is no command (see 'headrace --help')", name));
}

}  // namespace

std::string manual_page(const std::vector<CommandWords>& commands) {
  return commands.size() == 1 ? page_of_one(commands.front()) : page_of_all(commands);
}

SubcommandRun define_man(CLI::App& app) {
  auto flags = std::make_shared<ManFlags>();
  app.add_option("command", flags->words, "Of this command alone: \"serve\", \"bench serve\"")
      ->group("Flags");
  app.add_option("--pages", flags->pages,
                 "Write a page of all and one of each command into this folder, for man(1)")
      ->type_name("FOLDER")
      ->group("Flags");
  app.footer(kManFooter);
  return [flags] { return print_or_write(*flags); };
}

}  // namespace headrace
