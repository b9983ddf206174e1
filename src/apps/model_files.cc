#include "apps/model_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weights/dummy_weights.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// ---- vocabulary -------------------------------------------------------------------------------

Status read_kinds(const GgufFile& file, Vocab& vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  HR_ASSIGN_OR_RETURN(const auto types, file.optional_array(kKey));
  if (!types) return ok_status();
  if (types->size() != vocab.tokens.size()) {
    return file.corrupt_field(
        kKey, fmt::format("{} entries for {} tokens", types->size(), vocab.tokens.size()));
  }
  vocab.kinds.reserve(types->size());
  for (size_t i = 0; i < types->size(); ++i) {
    const auto kind = types->int_at(i);
    if (!kind || *kind < static_cast<int64_t>(TokenKind::kNormal) ||
        *kind > static_cast<int64_t>(TokenKind::kByte)) {
      return file.corrupt_field(kKey, fmt::format("entry {} is no token type (1 to 6)", i));
    }
    vocab.kinds.push_back(static_cast<TokenKind>(*kind));
  }
  return ok_status();
}

// A special token's id, or -1 where the file names none.
Result<TokenId> read_id(const GgufFile& file, std::string_view key, size_t token_count) {
  HR_ASSIGN_OR_RETURN(const auto id, file.optional_int(key));
  if (!id) return TokenId{-1};
  if (*id < 0 || static_cast<uint64_t>(*id) >= token_count) {
    return file.corrupt_field(
        key, fmt::format("{} is no id of a vocabulary of {} tokens", *id, token_count));
  }
  return static_cast<TokenId>(*id);
}

Status read_special_ids(const GgufFile& file, Vocab& vocab) {
  const size_t count = vocab.tokens.size();
  HR_ASSIGN_OR_RETURN(vocab.bos, read_id(file, "tokenizer.ggml.bos_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.eos, read_id(file, "tokenizer.ggml.eos_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.unk, read_id(file, "tokenizer.ggml.unknown_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.pad, read_id(file, "tokenizer.ggml.padding_token_id", count));
  for (const std::string_view key :
       {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    HR_ASSIGN_OR_RETURN(const TokenId id, read_id(file, key, count));
    if (id >= 0) vocab.end_ids.push_back(id);
  }
  add_known_end_ids(vocab);
  return ok_status();
}

Status read_flags(const GgufFile& file, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(const auto add_bos, file.optional_bool("tokenizer.ggml.add_bos_token"));
  HR_ASSIGN_OR_RETURN(const auto add_space, file.optional_bool("tokenizer.ggml.add_space_prefix"));
  HR_ASSIGN_OR_RETURN(const auto chat_template, file.optional_string("tokenizer.chat_template"));
  // SentencePiece models ("llama") add both unless the file says no; byte-level ones do neither.
  const bool sentence_piece = vocab.model == "llama";
  vocab.add_bos = add_bos.value_or(sentence_piece);
  vocab.add_space_prefix = add_space.value_or(sentence_piece);
  vocab.chat_template = chat_template.value_or("");
  return ok_status();
}

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

Result<Vocab> vocab_from_gguf(const GgufFile& file, std::shared_ptr<const void> storage) {
  Vocab vocab;
  vocab.storage = std::move(storage);
  HR_ASSIGN_OR_RETURN(vocab.model, file.require_string("tokenizer.ggml.model"));
  HR_ASSIGN_OR_RETURN(const auto pre, file.optional_string("tokenizer.ggml.pre"));
  vocab.pre = pre.value_or("default");
  HR_ASSIGN_OR_RETURN(const GgufStrings tokens, file.require_strings("tokenizer.ggml.tokens"));
  vocab.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    HR_ASSIGN_OR_RETURN(const GgufStrings merges, file.require_strings("tokenizer.ggml.merges"));
    vocab.merges.assign(merges.begin(), merges.end());
  }
  HR_RETURN_IF_ERROR(read_kinds(file, vocab));
  HR_RETURN_IF_ERROR(read_special_ids(file, vocab));
  HR_RETURN_IF_ERROR(read_flags(file, vocab));
  if (Status status = validate(vocab); !status.ok()) return status.with_context(file.name());
  return vocab;
}

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
