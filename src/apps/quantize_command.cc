#include "apps/quantize_command.h"

#include <filesystem>
#include <memory>
#include <string>

#include "apps/quantize_run.h"
#include "cli/command_line.h"
#include "stack/hub_cache.h"
#include "stack/model_names.h"

namespace headrace {
namespace {

constexpr const char* kQuantizeFooter = R"(Examples:
  headrace quantize FOLDER OUT                      (4 bits by GPTQ, a compressed-tensors folder)
  headrace quantize FOLDER OUT --method awq --calibration book.txt
  headrace quantize model.gguf out.gguf --type q4_k (with an importance matrix)

What is interrupted goes on where it was when the same command is given again.)";

// What the matrices of a .gguf file may become.
constexpr Named<std::optional<DType>> kBlockTypes[] = {
    {"q8_0", DType::kQ8_0}, {"q6_k", DType::kQ6_K}, {"q5_k", DType::kQ5_K}, {"q5_1", DType::kQ5_1},
    {"q5_0", DType::kQ5_0}, {"q4_k", DType::kQ4_K}, {"q4_1", DType::kQ4_1}, {"q4_0", DType::kQ4_0},
};

struct QuantizeFlags {
  QuantizeRunOptions run;
  bool asymmetric = false;
  int32_t bits = 0;    // 0: not said
  std::string method;  // empty: nearest of .gguf files, else gptq
};

void add_format_flags(CLI::App& app, QuantizeFlags& flags) {
  QuantizeOptions& quantize = flags.run.quantize;
  add_choice(app, "--method", flags.method, names_of(kQuantizeMethods),
             "nearest (rtn), gptq or awq (default: gptq; of a .gguf file nearest, by importance)")
      ->group("Format");
  app.add_option("--bits", flags.bits, "Bits of a weight, of a folder: 4 or 8 (default 4)")
      ->check(CLI::IsMember({4, 8}))
      ->type_name("N")
      ->group("Format");
  app.add_option("--group-size", flags.run.group,
                 "Columns that share a scale, of a folder (default: the largest of 128, 64 and 32 "
                 "that divides all)")
      ->check(CLI::Range(32, 1 << 20))
      ->type_name("N")
      ->group("Format");
  app.add_flag("--asymmetric", flags.asymmetric, "Groups have zero points, too")->group("Format");
  app.add_flag("--act-order,--desc-act", quantize.act_order,
               "GPTQ: columns of large inputs first; groups stay runs of columns")
      ->group("Format");
  app.add_option("--damping,--damp-percent", quantize.damping,
                 "GPTQ: share of itself that is added to each element of the diagonal")
      ->check(number_between(1e-6, 1.0))
      ->type_name("X")
      ->group("Format");
  add_choice(app, "--type", quantize.block_type, kBlockTypes,
             "What matrices of a .gguf file become; those that its blocks do not divide take the "
             "next of 32")
      ->group("Format");
}

void add_text_flags(CLI::App& app, QuantizeFlags& flags) {
  app.add_option("--calibration", flags.run.calibration,
                 "The text that layers are measured by (default: a small one of the program's own)")
      ->type_name("FILE")
      ->group("Text");
  app.add_option("--samples,--num-calibration-samples", flags.run.samples,
                 "Sequences of it (default: 128, or what the program's own text has)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group("Text");
  app.add_option("--length,--max-seq-length", flags.run.length, "Tokens of a sequence")
      ->transform(size_between(16, 1 << 20))
      ->type_name("N")
      ->group("Text");
  app.add_option("--perplexity", flags.run.perplexity,
                 "The text of perplexity before and after (default: the end of the other)")
      ->type_name("FILE")
      ->group("Text");
  app.add_flag("!--no-perplexity", flags.run.measures_perplexity,
               "Measure none: both models are in memory for it, one after the other")
      ->group("Text");
}

// The .gguf file, or the folder of what is named.
Result<std::string> model_path(const std::string& name) {
  HR_ASSIGN_OR_RETURN(const std::string model, local_model(name));
  std::error_code ignored;
  const std::filesystem::path path(model);
  if (!std::filesystem::exists(path, ignored) && is_hub_name(model)) return hub_snapshot(model);
  const bool inside = path.extension() == ".json" || path.extension() == ".safetensors";
  if (!inside) return model;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

Result<int> run(QuantizeFlags& flags) {
  QuantizeRunOptions& options = flags.run;
  if (options.model.empty() || options.out.empty()) {
    return invalid_argument("MODEL and OUT are required (see 'headrace quantize --help')");
  }
  HR_ASSIGN_OR_RETURN(options.model, model_path(options.model));
  while (options.out.size() > 1 && options.out.ends_with('/')) options.out.pop_back();
  const bool gguf = options.quantize.block_type.has_value();
  options.quantize.grid.symmetric = !flags.asymmetric;
  if (flags.bits > 0) options.quantize.grid.bits = flags.bits;
  options.quantize.method = gguf ? QuantizeMethod::kNearest : QuantizeMethod::kGptq;
  if (const auto method = value_named(kQuantizeMethods, flags.method)) {
    options.quantize.method = *method;
  }
  if (gguf && (flags.asymmetric || options.group > 0 || flags.bits > 0)) {
    return invalid_argument(
        "--type says bits, groups and zero points: leave --bits, --group-size and --asymmetric "
        "out");
  }
  HR_RETURN_IF_ERROR(run_quantize(options));
  return 0;
}

}  // namespace

SubcommandRun define_quantize(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  app.add_option("MODEL,-m,--model", flags->run.model,
                 "A Hugging Face folder of float weights, or a .gguf file")
      ->group("Flags");
  app.add_option("OUT,-o,--out", flags->run.out, "The folder or .gguf file that is made")
      ->group("Flags");
  app.add_option("-t,--threads", flags->run.threads,
                 "CPU threads (default: one a core that the program may use, within its quota)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group("Flags");
  add_format_flags(app, *flags);
  add_text_flags(app, *flags);
  app.footer(kQuantizeFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
