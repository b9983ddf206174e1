#include "apps/inspect_command.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/inspect.h"
#include "cli/command_line.h"
#include "stack/model_names.h"

namespace headrace {
namespace {

constexpr const char* kInspectFooter = R"(Examples:
  headrace inspect model.gguf
  headrace inspect FOLDER --max-model-len 8K
  headrace inspect model.gguf --tensors -o json | jq .tensors)";

struct InspectFlags {
  std::string path;
  std::string output = "text";
  InspectOptions options;
};

}  // namespace

SubcommandRun define_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.add_option("MODEL,-m,--model", flags->path, "A .gguf file or a Hugging Face folder")
      ->group("Flags");
  add_choice(app, "-o,--output", flags->output, {"text", "json"}, "How it is printed")
      ->group("Flags");
  app.add_flag("--json", flags->options.json, "The same as -o json")->group("Flags");
  app.add_flag("--tensors", flags->options.tensors, "List every tensor")->group("Flags");
  app.add_option("--max-model-len,--ctx-size,-c", flags->options.context,
                 "Context of the memory plan (default: the model's own)")
      ->transform(size_between(1, 1 << 27))
      ->type_name("N")
      ->group("Flags");
  app.footer(kInspectFooter);
  return [flags]() -> Result<int> {
    if (flags->path.empty()) {
      return invalid_argument("MODEL is required (see 'headrace inspect --help')");
    }
    if (flags->output == "json") flags->options.json = true;
    HR_ASSIGN_OR_RETURN(const std::string model, local_model(flags->path));
    HR_ASSIGN_OR_RETURN(const std::string report, inspect_model(model, flags->options));
    fmt::print("{}", report);
    return 0;
  };
}

}  // namespace headrace
