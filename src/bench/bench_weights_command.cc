#include "bench/bench_weights_command.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "cli/command_line.h"
#include "stack/model_files.h"
#include "terminal/progress.h"
#include "weights/dummy_weights.h"
#include "weights/safetensors_writer.h"

namespace headrace {
namespace {

constexpr const char* kBenchWeightsFooter = R"(Examples:
  headrace bench weights -m bench/models/llama-8b --out /tmp/llama-8b
  headrace run -m /tmp/llama-8b

The folder gets the config.json of -m and one model.safetensors. Its values are those of
--load-format dummy with the same --seed; vectors too have the type of --dtype.)";

struct WeightsFlags {
  std::string model, out;
  DType dtype = DType::kBF16;
  uint64_t seed = 0;
  int threads = 0;
};

constexpr Named<DType> kFloatTypes[] = {
    {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};

// What a tensor of the architecture, or a matrix of a stack, is in the file, and what its file
// value lacks.
struct NamedTensor {
  DummyTensor tensor;
  std::string file_name;
  Shape shape;
  int64_t first = 0;  // of the tensor's elements
  float offset = 0;
};

void list_matrices(HfTensorNames names, const TensorSpec& spec, std::vector<NamedTensor>& tensors) {
  const Shape matrix{spec.shape[1], spec.shape[2]};
  for (int32_t e = 0; e < spec.shape[0]; ++e) {
    tensors.push_back({.tensor = {spec.name, spec.shape},
                       .file_name = hf_name_of(names, spec.name, e),
                       .shape = matrix,
                       .first = e * *matrix.elements()});
  }
}

Result<std::vector<NamedTensor>> list_tensors(const Architecture& architecture,
                                              const ModelConfig& config) {
  const HfTensorNames names = architecture.hf_names();
  std::vector<NamedTensor> tensors;
  for (const TensorSpec& spec : architecture.tensors(config)) {
    NamedTensor named{.tensor = {spec.name, spec.shape},
                      .file_name = hf_name_of(names, spec.name),
                      .shape = spec.shape};
    const auto match = match_hf_name(names, named.file_name);
    if (match && match->expert >= 0) {
      list_matrices(names, spec, tensors);
      continue;
    }
    if (match && !match->second_half.empty()) {
      return unsupported(
          fmt::format("{}: files of {} have gates and ups in one tensor, which is "
                      "not written here",
                      named.file_name, architecture.name));
    }
    if (match) named.offset = match->offset;
    tensors.push_back(std::move(named));
  }
  return tensors;
}

Status make_folder(const WeightsFlags& flags) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(flags.out, error);
  if (!error) {
    fs::copy_file(fs::path(flags.model) / "config.json", fs::path(flags.out) / "config.json",
                  fs::copy_options::overwrite_existing, error);
  }
  if (!error) return ok_status();
  return invalid_argument(fmt::format("--out {}: {}", flags.out, error.message()), "out");
}

Result<int> run(const WeightsFlags& flags) {
  HR_ASSIGN_OR_RETURN(const auto source, open_model_source(flags.model));
  if (source->kind() != SourceKind::kHuggingFace) {
    return invalid_argument(fmt::format("-m {}: must be a folder with a config.json", flags.model),
                            "model");
  }
  HR_ASSIGN_OR_RETURN(const ModelConfig config, source->config());
  HR_ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config.architecture));
  HR_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, list_tensors(*architecture, config));
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& named : tensors) {
    entries.push_back({named.file_name, flags.dtype, named.shape});
  }
  HR_RETURN_IF_ERROR(make_folder(flags));
  const SystemClock clock;
  const double start = clock.now_seconds();
  HR_ASSIGN_OR_RETURN(const auto writer,
                      SafetensorsWriter::create(flags.out + "/model.safetensors", entries));
  ThreadPool pool(place_threads(CpuTopology::read(), flags.threads, CpuBinding::kAuto));
  Progress progress("write", "tensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    progress.update(static_cast<double>(i), static_cast<double>(tensors.size()));
    fill_dummy_elements(pool, flags.seed, tensors[i].tensor, tensors[i].offset, flags.dtype,
                        tensors[i].first, *tensors[i].shape.elements(), writer->data(i).data());
  }
  progress.take_away();
  fmt::print("{}: {} tensors, {} bytes in {:.1f} s\n", flags.out, tensors.size(),
             writer->file_bytes(), clock.now_seconds() - start);
  return 0;
}

}  // namespace

SubcommandRun define_bench_weights(CLI::App& app) {
  auto flags = std::make_shared<WeightsFlags>();
  app.add_option("-m,--model", flags->model, "A folder with a config.json")
      ->required()
      ->type_name("PATH")
      ->group("Work");
  app.add_option("--out", flags->out, "The folder to make")
      ->required()
      ->type_name("PATH")
      ->group("Work");
  add_choice(app, "--dtype", flags->dtype, kFloatTypes, "Type of the values")->group("Work");
  app.add_option("--seed", flags->seed, "Seed of the values")->type_name("N")->group("Work");
  app.add_option("-t,--threads", flags->threads, "CPU threads (default: every CPU)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group("Work");
  app.footer(kBenchWeightsFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
