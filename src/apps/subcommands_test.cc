#include "apps/subcommands.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>

#include "cli/command_line.h"

namespace headrace::subcommands_test {
namespace {

// Defining flags throws where two of them share a name.
TEST(Subcommands, EachHasFlagsAndAHelpPageOfSaneWidth) {
  for (const Subcommand& subcommand : subcommands()) {
    const std::unique_ptr<CLI::App> app = make_app(subcommand);
    const SubcommandRun run = subcommand.define(*app);
    EXPECT_TRUE(run);
    std::istringstream page(help_page(*app));
    for (std::string line; std::getline(page, line);) {
      EXPECT_LE(line.size(), 110u) << subcommand.name << ": " << line;
    }
    EXPECT_EQ(*parse_arguments(*app, {"--help"}), ParseOutcome::kHelp);
  }
  EXPECT_EQ(find_subcommand("no-such"), nullptr);
}

}  // namespace
}  // namespace headrace::subcommands_test
