#include "cli/model_flags.h"

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "cli/config_file.h"
#include "cli/foreign_flags.h"
#include "stack/default_model.h"
#include "stack/hub_cache.h"
#include "stack/model_names.h"

namespace headrace {
namespace {

constexpr int kThreadsMax = 1024;

constexpr Named<LogLevel> kLogLevels[] = {
    {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError}, {"off", LogLevel::kOff},
};

constexpr Named<LogFormat> kLogFormats[] = {{"text", LogFormat::kText}, {"json", LogFormat::kJson}};

void add_log_flags(CLI::App& app, ModelFlags& flags) {
  add_choice(app, "--log-level,--uvicorn-log-level", flags.log_level, kLogLevels,
             "What is written to stderr")
      ->group("Other");
  add_choice(app, "--log-format", flags.log_format, kLogFormats,
             "Its form: lines for people, or an object of JSON a line for collectors; no prompts "
             "and no answers in either")
      ->group("Other");
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& flags, ModelArgument argument) {
  add_config_flag(app);
  const bool several = argument == ModelArgument::kSeveral;
  const std::string names =
      std::string("-m,--model,--model-path") + (argument == ModelArgument::kFlag ? "" : ",model");
  const std::string help =
      std::string(
          "The model: a .gguf file, a Hugging Face folder, or a name as Qwen/Qwen3-0.6B or "
          "hf:USER/MODEL:Q8_0 that is in the Hugging Face cache") +
      (several ? "; several, as PATH or NAME=PATH, are loaded when they are asked for" : "") +
      " (default: $HEADRACE_MODEL, else SmolLM2-135M-Instruct as ./quickstart fetched it)";
  CLI::Option* model = several ? app.add_option(names, flags.models, help)
                               : app.add_option(names, flags.stack.model, help);
  model
      ->check(CLI::Validator(
          [](std::string& text) { return text.empty() ? "must not be empty" : std::string(); }, ""))
      ->type_name("PATH")
      ->group("Model");
  app.add_option("--revision", flags.revision,
                 "Branch, tag or commit of a model that is named by its name in the Hugging Face "
                 "cache (default: main)")
      ->type_name("NAME")
      ->group("Model");
  app.add_option("--hf-repo,--hf,--hfr", flags.hf_repo,
                 "The .gguf file of a model in the Hugging Face cache, as USER/MODEL:Q8_0 "
                 "(default: Q4_K_M, else the first)")
      ->type_name("NAME")
      ->group("Model");
  app.add_option("--hf-file,--hff", flags.hf_file, "The same file by its name")
      ->type_name("FILE")
      ->group("Model");
  app.add_option(
         "--architecture-map", flags.stack.load.architecture_map,
         "A JSON file that says which known class a Hugging Face folder's class is like, and "
         "what its keys and tensors are called (docs/changing.md)")
      ->type_name("FILE")
      ->group("Model");
  app.add_option("-t,--threads", flags.stack.device.threads,
                 "CPU threads (default: one a core that the program may use, within its quota)")
      ->check(CLI::Range(0, kThreadsMax))
      ->type_name("N")
      ->group("Model");
  add_compute_flags(app, flags);
}

// How weights lie in memory.
void add_weight_flags(CLI::App& app, LoadOptions& load) {
  add_choice(app, "--quantization,-q", load.quantise_to, kQuantizations,
             "Quantise float matrices (bf16, fp16, fp32) while the model is loaded")
      ->group("Model");
  add_choice(
      app, "--block-weights", load.block_weights, kBlockWeights,
      "GPU, quantised weights: packed, as in the file, for few streams; or unpacked to 16 "
      "bits, for many, with two to four times the memory; auto: unpacked where that is under "
      "a fiftieth of the GPU's, of mixtures of experts half")
      ->group("Model");
  load.packed_cache = PackedCacheUse::kAuto;
  add_choice(
      app, "--packed-cache", load.packed_cache, kPackedCacheUses,
      "CPU, .gguf files: keep the weights as this machine's kernels want them in a file, which "
      "later starts map instead of packing; auto: files of 16 MiB to 2 GiB on a disk with ample "
      "room; $HEADRACE_PACKED_CACHE sets it where the flag does not")
      ->envname("HEADRACE_PACKED_CACHE")
      ->group("Model");
  app.add_option("--packed-cache-dir", load.packed_cache_folder,
                 "Where those files lie (default: headrace/packed in the user's cache folder; the "
                 "longest unused go when they are more than 4 GiB)")
      ->type_name("FOLDER")
      ->group("Model");
  add_choice(
      app, "--pack-weights", load.pack_weights, kPackTimes,
      "CPU: when weights are laid out for good: at the start, or behind the first step, which "
      "then lays out what it multiplies by in scratch memory; `use` is first with a first "
      "token where new memory is slow to come by, and a little later with the tenth")
      ->group("Model");
}

void add_compute_flags(CLI::App& app, ModelFlags& flags) {
  StackOptions& stack = flags.stack;
  LoadOptions& load = stack.load;
  add_choice(app, "--load-format", load.format, kLoadFormats,
             "dummy: random weights in the shape that a config.json gives")
      ->group("Model");
  app.add_option("--dummy-sharpness", load.dummy_sharpness,
                 "--load-format dummy: weights of queries and keys times X. More than 1: a row's "
                 "attention goes to few keys, as a trained model's, and not to all alike")
      ->check(number_between(0.01, 100.0))
      ->type_name("X")
      ->group("Model");
  add_choice(app, "--dtype", load.dtype, kArithmeticTypes,
             "Arithmetic. auto: the fast path for the file's types; float32: all in fp32; GPU: "
             "float16, bfloat16 too; encoders: bfloat16 too")
      ->group("Model");
  app.add_option("--activation-bits", load.activation_bits,
                 "CPU, quantised weights: 8 bits of activations (16 for outliers) or 16 for all: "
                 "close to fp32, and slower at prompts and many streams")
      ->check(CLI::IsMember({8, 16}))
      ->type_name("8|16")
      ->group("Model");
  app.add_option("--device,--dev", flags.device,
                 "Where the model runs: auto (the GPU if there is one), cpu, cuda, cuda:N; "
                 "cuda:N,M,... of ranks")
      ->type_name("DEVICE")
      ->group("Model");
  app.add_option("--prefer-kernels", stack.prefer_kernels,
                 "For measurements: kernels that run wherever they fit, in place of the best "
                 "(attention/cpu/avx512,...)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group("Model");
  app.add_flag("--skip-unread-rows,!--no-skip-unread-rows", stack.runner.keep_logit_rows,
               "Compute of the last layer, but for its keys and values, only the rows whose logits "
               "are read: of a prompt the last one")
      ->group("Model");
  add_weight_flags(app, load);
  add_choice(app, "--cpu-bind", stack.device.cpu_bind, kCpuBindings,
             "CPUs of each compute thread: one of its own, its NUMA node's, or any; auto: core "
             "where the threads take every core and no quota shares them")
      ->group("Model");
  add_log_flags(app, flags);
  add_foreign_flags(app);
}

void add_generation_config_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option(
         "--generation-config", flags.stack.text.generation_config,
         "Sampling where nothing else is said. auto: as the model's makers suggest "
         "(generation_config.json, general.sampling.* of a GGUF file); vllm: none of it; or "
         "a folder with a generation_config.json")
      ->type_name("auto|vllm|FOLDER")
      ->group("Model");
  app.add_option("--override-generation-config", flags.stack.text.override_generation_config,
                 "Goes before it, as {\"temperature\": 0.6, \"top_k\": 20}; keys: temperature, "
                 "top_p, top_k, min_p, repetition_penalty, max_new_tokens")
      ->type_name("JSON")
      ->group("Model");
}

void add_template_flag(CLI::App& app, ModelFlags& flags) {
  app.add_option("--chat-template,--chat-template-file", flags.stack.text.chat_template,
                 "A Jinja template instead of the model's, a file with one, or the name of one "
                 "(chatml, llama3, gemma, ...)")
      ->type_name("FILE|TEXT|NAME")
      ->group("Model");
}

namespace {

// What a model's name, --revision, --hf-repo and --hf-file mean on this machine.
Status find_model(ModelFlags& flags) {
  std::string& model = flags.stack.model;
  if (!flags.hf_file.empty() && flags.hf_repo.empty()) {
    return invalid_argument("--hf-file needs --hf-repo");
  }
  if (!flags.hf_repo.empty()) {
    if (!model.empty()) return invalid_argument("--hf-repo and --model name two models: drop one");
    HR_ASSIGN_OR_RETURN(model, hub_gguf(flags.hf_repo, flags.hf_file, flags.revision));
    return ok_status();
  }
  HR_ASSIGN_OR_RETURN(const ModelName name, ModelName::read(model));
  if (!flags.revision.empty() && name.kind() != NameKind::kHub) {
    return invalid_argument(fmt::format(
        "--revision {}: {} has none: only a name of the Hugging Face cache, as Qwen/Qwen3-0.6B, "
        "has revisions",
        flags.revision, model.empty() ? "the default model" : model));
  }
  HR_ASSIGN_OR_RETURN(model, local_model(model, flags.revision));
  return ok_status();
}

// Numbers with commas between them.
bool read_gpus(std::string_view text, std::vector<int>& gpus) {
  gpus.clear();
  for (const char *at = text.data(), *const end = at + text.size(); at <= end; ++at) {
    const auto [read, error] = std::from_chars(at, end, gpus.emplace_back());
    if (error != std::errc() || gpus.back() < 0 || (read != end && *read != ',')) return false;
    at = read;
  }
  return true;
}

// "auto", "cpu", "cuda", "cuda:N" or "cuda:N,M,..."; of llama.cpp's "none" and "CUDA0".
Status read_device(std::string_view name, DeviceOptions& options) {
  if (name == "auto" || name == "cpu" || name == "none") {
    options.choice = name == "auto" ? DeviceChoice::kAuto : DeviceChoice::kCpu;
    return ok_status();
  }
  options.choice = DeviceChoice::kGpu;
  if (name == "cuda") return ok_status();
  if (name.starts_with("CUDA") && read_gpus(name.substr(4), options.gpus) &&
      options.gpus.size() == 1) {
    return ok_status();
  }
  if (name.starts_with("cuda:") && read_gpus(name.substr(5), options.gpus)) return ok_status();
  return invalid_argument(
      fmt::format("--device {}: must be auto, cpu, cuda, cuda:N, or cuda:N,M,... of ranks", name),
      "device");
}

}  // namespace

Status apply_model_flags(ModelFlags& flags) {
  set_log_format(flags.log_format);
  set_log_level(flags.log_level);
  HR_RETURN_IF_ERROR(read_device(flags.device, flags.stack.device));
  HR_RETURN_IF_ERROR(find_model(flags));
  if (flags.stack.model.empty() && flags.needs_model) {
    HR_ASSIGN_OR_RETURN(flags.stack.model, default_model_path());
  }
  return ok_status();
}

}  // namespace headrace
