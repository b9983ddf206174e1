#include "apps/inspect_command.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/command_line.h"
#include "apps/inspect.h"

namespace headrace {
namespace {

constexpr const char* kFooter = R"(Examples:
  headrace inspect model.gguf
  headrace inspect model.gguf --tensors --json | jq .tensors)";

struct InspectFlags {
  std::string file;
  InspectOptions options;
};

}  // namespace

SubcommandRun define_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.add_option("FILE,-m,--model", flags->file, "The model file")->group("Flags");
  app.add_flag("--json", flags->options.json, "One JSON object instead of text")->group("Flags");
  app.add_flag("--tensors", flags->options.tensors, "List every tensor")->group("Flags");
  app.add_option("--max-model-len,--ctx-size,-c", flags->options.context,
                 "Context of the memory plan (default: the model's own)")
      ->transform(size_between(1, 1 << 27))
      ->type_name("N")
      ->group("Flags");
  app.footer(kFooter);
  return [flags]() -> Result<int> {
    if (flags->file.empty()) {
      return invalid_argument("FILE is required (see 'headrace inspect --help')");
    }
    HR_ASSIGN_OR_RETURN(const std::string report, inspect_file(flags->file, flags->options));
    fmt::print("{}", report);
    return 0;
  };
}

}  // namespace headrace
