#include "apps/model_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/gguf_vocab.h"
#include "weights/dummy_weights.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// ---- opening ----------------------------------------------------------------------------------

std::string model_name(const std::string& path) {
  const fs::path clean = fs::path(path).lexically_normal();
  const fs::path file = clean.has_filename() ? clean : clean.parent_path();
  if (file.extension() == ".gguf") return file.stem().string();
  return file.filename() == "config.json" ? fs::absolute(file).parent_path().filename().string()
                                          : file.filename().string();
}

bool is_gguf(const std::string& path) { return fs::path(path).extension() == ".gguf"; }

int64_t element_count(const std::vector<TensorSpec>& tensors) {
  int64_t count = 0;
  for (const TensorSpec& tensor : tensors) count += tensor.shape.elements().value_or(0);
  return count;
}

Result<std::shared_ptr<WeightSource>> dummy_weights(const ModelConfig& config,
                                                    const ModelOpenOptions& options,
                                                    int64_t& parameter_count) {
  HR_ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config.architecture));
  const std::vector<TensorSpec> specs = architecture->tensors(config);
  parameter_count = element_count(specs);
  std::vector<DummyTensor> tensors;
  tensors.reserve(specs.size());
  for (const TensorSpec& spec : specs) tensors.push_back({spec.name, spec.shape});
  HR_ASSIGN_OR_RETURN(auto source,
                      DummyWeightSource::create(std::move(tensors), {.dtype = options.dummy_dtype,
                                                                     .seed = options.seed,
                                                                     .threads = options.threads}));
  return std::shared_ptr<WeightSource>(std::move(source));
}

// What a .gguf file says apart from its weights.
Status read_gguf(const std::shared_ptr<const GgufFile>& file, ModelFiles& files) {
  HR_ASSIGN_OR_RETURN(files.config, model_config_from_gguf(*file));
  if (file->find("tokenizer.ggml.model") != nullptr) {
    HR_ASSIGN_OR_RETURN(files.vocab, vocab_from_gguf(*file, file));
    files.chat_template = files.vocab->chat_template;
  }
  return ok_status();
}

Result<ModelFiles> open_dummy(const std::string& path, const ModelOpenOptions& options) {
  ModelFiles files;
  files.name = model_name(path);
  if (is_gguf(path)) {
    HR_ASSIGN_OR_RETURN(const auto file, GgufFile::open(path));
    HR_RETURN_IF_ERROR(read_gguf(file, files));
  } else {
    HR_ASSIGN_OR_RETURN(files.config, model_config_from_file(path));
  }
  HR_ASSIGN_OR_RETURN(files.weights, dummy_weights(files.config, options, files.parameter_count));
  files.weight_types = dtype_name(options.dummy_dtype);
  return files;
}

Result<ModelFiles> open_gguf(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, GgufFile::open(path));
  ModelFiles files;
  files.name = model_name(path);
  files.file_bytes = static_cast<int64_t>(file->file_bytes());
  HR_RETURN_IF_ERROR(read_gguf(file, files));
  HR_ASSIGN_OR_RETURN(const Architecture* architecture,
                      find_architecture(files.config.architecture));
  HR_RETURN_IF_ERROR(check_tensors(*file, *architecture, files.config));
  files.parameter_count = element_count(architecture->tensors(files.config));
  files.weight_types = matrix_types(*file);
  files.weights = std::make_shared<GgufWeightSource>(file);
  return files;
}

}  // namespace

Status check_tensors(const GgufFile& file, const Architecture& architecture,
                     const ModelConfig& config) {
  const std::vector<TensorSpec> specs = architecture.tensors(config);
  for (const TensorSpec& spec : specs) {
    const GgufTensor* tensor = file.find_tensor(spec.name);
    if (tensor == nullptr) return file.corrupt_field("tensor " + spec.name, "missing");
    if (tensor->shape != spec.shape) {
      return file.corrupt_field("tensor " + spec.name,
                                fmt::format("shape {}, the model's sizes ask for {}",
                                            tensor->shape.to_string(), spec.shape.to_string()));
    }
    HR_RETURN_IF_ERROR(file.view(*tensor).status());
  }
  if (file.plan().tensors.size() == specs.size()) return ok_status();
  std::vector<std::string_view> known;
  for (const TensorSpec& spec : specs) known.push_back(spec.name);
  std::sort(known.begin(), known.end());
  for (const GgufTensor& tensor : file.plan().tensors) {
    if (!std::binary_search(known.begin(), known.end(), tensor.name)) {
      return file.unsupported_field(
          "tensor " + printable(tensor.name),
          fmt::format("architecture {} does not use it here, and leaving it out would "
                      "change the model's answers",
                      architecture.name));
    }
  }
  return ok_status();
}

std::string matrix_types(const GgufFile& file) {
  std::map<std::string_view, size_t> bytes;
  for (const GgufTensor& tensor : file.plan().tensors) {
    if (tensor.shape.rank() >= 2) bytes[tensor.type->name] += tensor.bytes.size();
  }
  std::vector<std::pair<size_t, std::string_view>> order;
  for (const auto& [name, size] : bytes) order.emplace_back(size, name);
  std::sort(order.rbegin(), order.rend());
  std::string types;
  for (const auto& [size, name] : order) types += (types.empty() ? "" : " + ") + std::string(name);
  return types;
}

Result<ModelFiles> open_model(const std::string& path, const ModelOpenOptions& options) {
  if (options.load_format == "dummy") return open_dummy(path, options);
  if (options.load_format != "auto" && options.load_format != "gguf") {
    return invalid_argument(
        fmt::format("--load-format {}: must be auto, gguf or dummy", options.load_format),
        "load_format");
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || fs::path(path).extension() == ".json") {
    return unsupported(
        fmt::format("{}: only .gguf files have weights that can be read so far; "
                    "--load-format dummy makes random ones from a config.json",
                    path));
  }
  return open_gguf(path);
}

}  // namespace headrace
