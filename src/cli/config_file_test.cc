#include "cli/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command_line.h"

namespace headrace::config_file_test {
namespace {

// A command line with one flag of each kind, and a file for its --config.
struct Fixture {
  explicit Fixture(const std::string& yaml) {
    std::ofstream(path) << yaml;
    add_config_flag(*app);
    app->add_option("--port", port)->transform(size_between(0, 65535));
    app->add_option("--name,--alias", names)->expected(1, 8);
    app->add_option("--json", json);
    app->add_flag("--overlap,!--no-overlap", overlap);
    app->add_flag("--eager", eager);
    app->add_option("-m,--model,model", model);
  }
  ~Fixture() { std::remove(path.c_str()); }

  // The error's text; empty: there is none.
  std::string parse(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--config", path});
    const auto outcome = parse_arguments(*app, std::move(arguments));
    return outcome.ok() ? "" : outcome.status().message();
  }

  const std::string path = testing::TempDir() + fmt::format("headrace_config_{}.yaml", ::getpid());
  std::unique_ptr<CLI::App> app = make_app({"serve", "", nullptr});
  int port = 8000;
  std::vector<std::string> names;
  std::string json, model;
  bool overlap = true, eager = false;
};

TEST(ConfigFile, GivesFlagsTheirValues) {
  Fixture f(R"(# as vLLM's
model: some/model
port: 1k   # sizes as on the command line
alias: [one, two]
json: {temperature: 0.5, stop: ["a", b], think: true, none: null, "text": "1"}
no_overlap: true
eager: yes
)");
  EXPECT_EQ(f.parse({}), "");
  EXPECT_EQ(f.model, "some/model");
  EXPECT_EQ(f.port, 1000);
  EXPECT_EQ(f.names, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(f.json, R"({"temperature":0.5,"stop":["a","b"],"think":true,"none":null,"text":"1"})");
  EXPECT_FALSE(f.overlap);
  EXPECT_TRUE(f.eager);
}

TEST(ConfigFile, TheCommandLineGoesBeforeItByAnyName) {
  Fixture f("model: a\nport: 1\nname:\n- one\n- two\noverlap: false\neager: false\n");
  EXPECT_EQ(f.parse({"b", "--port", "2", "--alias", "three", "--overlap"}), "");
  EXPECT_EQ(f.model, "b");
  EXPECT_EQ(f.port, 2);
  EXPECT_EQ(f.names, std::vector<std::string>{"three"});
  EXPECT_TRUE(f.overlap);
  EXPECT_FALSE(f.eager);
}

TEST(ConfigFile, AListForAFlagOfOneValueIsJson) {
  Fixture f("json: [1, x]\n");
  EXPECT_EQ(f.parse({}), "");
  EXPECT_EQ(f.json, R"([1,"x"])");
}

TEST(ConfigFile, IsJsonToo) {
  Fixture f(R"({"port": 12, "name": ["x"]})");
  EXPECT_EQ(f.parse({}), "");
  EXPECT_EQ(f.port, 12);
}

TEST(ConfigFile, ErrorsNameTheLineAndWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"port: 1\nprot: 2\n", "line 2: prot is no flag of 'headrace serve'"},
      {"port: 1\nconfig: other.yaml\n", "line 2: config is no flag"},
      {"port: 1\nport: 2\n", "line 2: port stands twice"},
      {"port:\n", "line 1: port has no value"},
      {"- port\n", "line 1: expected flags and their values"},
      {"port: [1\n", "line 2: this is no YAML"},
      {"port: 70000\n", "70000 is outside 0 to 65535"},
  };
  for (const auto& [yaml, message] : cases) {
    EXPECT_NE(Fixture(yaml).parse({}).find(message), std::string::npos)
        << yaml << Fixture(yaml).parse({});
  }
  EXPECT_EQ(Fixture("").parse({}), "");
  EXPECT_NE(Fixture("").parse({"--config", "/no/such.yaml"}).find("--config: /no/such.yaml"),
            std::string::npos);
}

TEST(ConfigFile, AliasesCannotMakeItLarge) {
  std::string yaml = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    yaml += name;
    yaml += ": &";
    yaml += name;
    yaml += " [";
    for (int i = 0; i < 9; ++i) yaml += std::string("*") + static_cast<char>(name - 1) + ", ";
    yaml += "1]\n";
  }
  const auto entries = parse_config(yaml);
  ASSERT_FALSE(entries.ok());
  EXPECT_NE(entries.status().message().find("too many values"), std::string::npos);
  EXPECT_FALSE(parse_config(std::string(2 << 20, ' ')).ok());
}

}  // namespace
}  // namespace headrace::config_file_test
