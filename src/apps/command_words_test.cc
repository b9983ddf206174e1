#include "apps/command_words.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "apps/man_command.h"
#include "apps/subcommands.h"
#include "cli/command_line.h"

namespace headrace::command_words_test {
namespace {

// Every name of every flag that a subcommand's help shows.
std::set<std::string> shown_names(const Subcommand& subcommand) {
  const std::unique_ptr<CLI::App> app = make_app(subcommand);
  const SubcommandRun run = subcommand.define(*app);
  std::set<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    for (const std::string& name : option->get_snames()) names.insert("-" + name);
  }
  return names;
}

TEST(CommandWords, HaveEveryFlagOfEverySubcommand) {
  const std::vector<CommandWords> commands = all_command_words();
  ASSERT_EQ(commands.size(), subcommands().size());
  for (size_t i = 0; i < commands.size(); ++i) {
    EXPECT_EQ(commands[i].name, subcommands()[i].name);
    std::set<std::string> names;
    for (const FlagWords& flag : commands[i].flags) {
      if (!flag.positional) names.insert(flag.names.begin(), flag.names.end());
    }
    EXPECT_EQ(names, shown_names(subcommands()[i])) << commands[i].name;
    EXPECT_GE(names.size(), 2U);  // --help and -h at least
  }
}

TEST(CommandWords, SecondWordsAreFirstArguments) {
  for (const CommandWords& command : all_command_words()) {
    if (command.name != "bench") continue;
    const std::set<std::string> words(command.first_words.begin(), command.first_words.end());
    EXPECT_TRUE(words.count("latency") == 1 && words.count("ceilings") == 1);
  }
}

TEST(ManualPage, EscapesWhatRoffWouldObey) {
  const CommandWords command{.name = "x",
                             .summary = "a summary",
                             .flags = {{.names = {"--a-b", "-a"},
                                        .value = "N",
                                        .description = ".dot\n'quote \\n",
                                        .group = "G"}},
                             .footer = ".example"};
  const std::string page = manual_page({command});
  EXPECT_NE(page.find("\\fB\\-\\-a\\-b\\fR, \\fB\\-a\\fR \\fIN\\fR\n\\&.dot\n\\&'quote \\en\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("\n\\&.example\n"), std::string::npos);
}

}  // namespace
}  // namespace headrace::command_words_test
