// The program: finds the subcommand, reads its flags, runs it. Errors are one line on stderr and
// exit code 1.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/secret_arguments.h"
#include "apps/subcommands.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/environment_flags.h"
#include "cli/version.h"
#include "tensor/cpu_features.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr std::string_view kExamples = R"(Examples:
  headrace run -p "What is the capital of France?"
  headrace chat -m model.gguf
  headrace serve model.gguf --port 8000
  headrace bench -m model.gguf -p 512 -n 128

'headrace <command> --help' shows the flags of a command.
)";

// A message may quote what a server or a file says.
int fail(std::string_view message) {
  log_raw_line(fmt::format("headrace: error: {}", terminal_safe(message)));
  return 1;
}

int print_overview(std::FILE* out) {
  fmt::print(out,
             "Headrace runs large language models.\n\nUsage: headrace <command> [flags]\n\n"
             "Commands:\n");
  for (const Subcommand& subcommand : subcommands()) {
    fmt::print(out, "  {:<17} {}\n", subcommand.name, subcommand.summary);
  }
  fmt::print(out, "\n  --version    show the version\n  --help       show this page\n\n{}",
             kExamples);
  return out == stdout ? 0 : 1;
}

// Commands of other programs, and what does it here.
struct ForeignCommand {
  std::string_view name, remedy;
};
constexpr ForeignCommand kForeignCommands[] = {
    {"push", "models are files: upload them with the tools of where they go"},
    {"create",
     "a server makes one of a Modelfile's FROM, SYSTEM and PARAMETERs (POST /api/create); "
     "the command line takes them as flags (-m, --system, --temperature; --config FILE keeps "
     "them)"},
    {"cp",
     "a model is a file: copy it, or give it another name with 'headrace serve "
     "--served-model-name'; of a server POST /api/copy"},
    {"ls", "use 'headrace list'"},
    {"ps", "use 'headrace top', or GET /api/ps of a server"},
    {"stop",
     "a model leaves the memory of a server by POST /models/unload {\"model\": NAME}, or by "
     "POST /api/generate with \"keep_alive\": 0; SIGTERM or Ctrl-C ends the server"},
    {"complete", "use 'headrace run --raw -p TEXT'"},
    {"run-batch", "use 'headrace batch'"},
    {"collect-env", "use 'headrace doctor' and 'headrace --version'"},
};

std::string unknown_command(const std::string& name) {
  for (const ForeignCommand& command : kForeignCommands) {
    if (command.name == name) return fmt::format("there is no '{}': {}", name, command.remedy);
  }
  std::vector<std::string> known;
  for (const Subcommand& subcommand : subcommands()) known.emplace_back(subcommand.name);
  const std::string near = nearest_word(known, name);
  if (near.empty()) return fmt::format("'{}' is no command (see 'headrace --help')", name);
  return fmt::format("'{}' is no command; did you mean '{}'?", name, near);
}

int run_subcommand(const Subcommand& subcommand, std::vector<std::string> arguments) {
  const std::unique_ptr<CLI::App> app = make_app(subcommand);
  const SubcommandRun run = subcommand.define(*app);
  const EnvironmentFlags environment = flags_of_environment(*app, arguments);
  const Result<ParseOutcome> outcome =
      parse_arguments(*app, with_environment(environment, std::move(arguments)));
  if (!outcome.ok()) {
    const std::string message(outcome.status().message());
    if (environment.variables.empty()) return fail(message);
    return fail(fmt::format("{}; flags come from the environment, too: {}", message,
                            fmt::join(environment.variables, ", ")));
  }
  if (*outcome == ParseOutcome::kHelp) {
    fmt::print("{}", help_page(*app));
    return 0;
  }
  const Status isa = check_cpu_isa();
  if (!isa.ok()) return fail(isa.message());
  const Result<int> exit_code = run();
  return exit_code.ok() ? *exit_code : fail(exit_code.status().message());
}

int run_program(std::vector<std::string> arguments) {
  if (arguments.empty()) return print_overview(stderr);
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--version" || name == "-V" || name == "version") {
    fmt::print("headrace {} ({})\n", program_version(), build_commit());
    return 0;
  }
  if (name == "help" && !arguments.empty()) {
    name = arguments.front();
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  if (name == "--help" || name == "-h" || name == "help") return print_overview(stdout);
  // "bench latency" before "bench".
  const Subcommand* subcommand =
      arguments.empty() ? nullptr : find_subcommand(name + " " + arguments.front());
  if (subcommand != nullptr) {
    arguments.erase(arguments.begin());
  } else {
    subcommand = find_subcommand(name);
  }
  if (subcommand == nullptr) {
    return fail(unknown_command(name));
  }
  return run_subcommand(*subcommand, std::move(arguments));
}

// A result that did not reach its file is no success.
int with_output_written(int exit_code) {
  const bool flushed = std::fflush(stdout) == 0;
  if (exit_code != 0 || (flushed && std::ferror(stdout) == 0)) return exit_code;
  // Of a write that failed before, the reason is not known any more.
  return fail(flushed ? "the output could not be written"
                      : fmt::format("the output cannot be written: {}", std::strerror(errno)));
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that file only
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    headrace::hide_secret_arguments(argc, argv);
    return headrace::with_output_written(headrace::run_program(std::move(arguments)));
  } catch (const std::bad_alloc&) {
    return headrace::fail(
        "there is not enough memory: see 'headrace inspect' for what a model needs");
  }
}
