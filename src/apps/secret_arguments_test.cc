#include "apps/secret_arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::secret_arguments_test {
namespace {

// What ps shows of a command line.
std::vector<std::string> shown(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  hide_secret_arguments(static_cast<int>(argv.size()), argv.data());
  std::vector<std::string> result;
  for (const char* argument : argv) result.emplace_back(argument);
  return result;
}

TEST(SecretArguments, EverySpellingOfAKeyIsHidden) {
  using Arguments = std::vector<std::string>;
  for (const std::string flag : {"--api-key", "--api_key", "-api-key", "--metrics-key",
                                 "--metrics_key", "--worker-api-key", "--admin-key"}) {
    EXPECT_EQ(shown({"headrace", "serve", flag, "s3cret", "--port", "80"}),
              (Arguments{"headrace", "serve", flag, "*", "--port", "80"}));
    EXPECT_EQ(shown({"headrace", "serve", flag + "=s3cret", "-m", "model"}),
              (Arguments{"headrace", "serve", flag + "=*", "-m", "model"}));
  }
  EXPECT_EQ(shown({"h", "--api-key", "a", "b", "--port", "1"}),
            (Arguments{"h", "--api-key", "*", "*", "--port", "1"}));
}

TEST(SecretArguments, OtherArgumentsStayAsTheyAre) {
  const std::vector<std::string> arguments = {
      "h", "serve", "-m", "api-key", "--port", "8000", "--api-key-file", "keys", "--api-key"};
  EXPECT_EQ(shown(arguments), arguments);
}

}  // namespace
}  // namespace headrace::secret_arguments_test
