#include "weights/lora_file.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLoraConfigBytesMax = 1 << 20;
constexpr std::string_view kLoraConfig = "adapter_config.json";
constexpr std::string_view kLoraWeights = "adapter_model.safetensors";

// --- adapter_config.json -------------------------------------------------------------------------

// Another rank or alpha for the modules of a name, in the file's order.
using LoraPattern = std::vector<std::pair<std::string, double>>;

struct LoraConfig {
  double rank = 0, alpha = 0;
  LoraPattern ranks, alphas;
  bool rank_stabilised = false;
};

class LoraConfigReader {
 public:
  LoraConfigReader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  Result<LoraConfig> read() const {
    HR_RETURN_IF_ERROR(check_kind());
    HR_RETURN_IF_ERROR(check_left_out());
    LoraConfig config;
    HR_ASSIGN_OR_RETURN(config.rank, positive("r"));
    HR_ASSIGN_OR_RETURN(config.alpha, positive("lora_alpha"));
    HR_ASSIGN_OR_RETURN(config.ranks, pattern("rank_pattern"));
    HR_ASSIGN_OR_RETURN(config.alphas, pattern("alpha_pattern"));
    const Json* const stabilised = json_.find("use_rslora");
    config.rank_stabilised = stabilised != nullptr && *stabilised == Json(true);
    if (stabilised != nullptr && !config.rank_stabilised && !is_off(*stabilised)) {
      return corrupt_key("use_rslora", "must be true or false");
    }
    return config;
  }

 private:
  Status unsupported_key(std::string_view key, std::string_view what) const {
    return unsupported(fmt::format("{}: {}: {}", path_, key, what), std::string(key));
  }
  Status corrupt_key(std::string_view key, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", path_, key, what), std::string(key));
  }

  Status check_kind() const {
    const Json* const kind = json_.find("peft_type");
    if (kind == nullptr || !kind->is_string()) return corrupt_key("peft_type", "is missing");
    if (kind->as_string() == "LORA") return ok_status();
    return unsupported_key("peft_type",
                           fmt::format("{}: only LORA is read", printable(kind->as_string())));
  }

  // What changes the model in other ways than by products beside its matrices.
  Status check_left_out() const {
    struct LeftOut {
      std::string_view key, why;
    };
    static constexpr LeftOut kLeftOut[] = {
        {"use_dora", "DoRA is not supported: it scales whole weights"},
        {"use_qalora", "QALoRA is not supported"},
        {"lora_bias", "adapters with a bias are not supported"},
        {"fan_in_fan_out", "transposed matrices are not supported"},
        {"modules_to_save", "modules that were trained whole are not supported"},
        {"trainable_token_indices", "trained embeddings are not supported"},
        {"target_parameters", "adapters of parameters are not supported: only of modules"},
        {"layer_replication", "replicated layers are not supported"},
        {"alora_invocation_tokens", "activated LoRA is not supported"},
        {"arrow_config", "routed adapters are not supported"},
    };
    for (const LeftOut& each : kLeftOut) {
      const Json* const value = json_.find(each.key);
      if (value != nullptr && !is_off(*value)) return unsupported_key(each.key, each.why);
    }
    const Json* const bias = json_.find("bias");
    if (bias != nullptr && !is_off(*bias) && *bias != Json("none")) {
      return unsupported_key("bias", "trained biases are not supported: only \"none\"");
    }
    return check_start();
  }

  // Ways to begin that leave the model's own weights as they are.
  Status check_start() const {
    static constexpr std::string_view kHarmless[] = {"gaussian", "eva", "orthogonal"};
    const Json* const start = json_.find("init_lora_weights");
    if (start == nullptr || !start->is_string()) return ok_status();
    const std::string& name = start->as_string();
    if (std::ranges::find(kHarmless, name) != std::end(kHarmless)) return ok_status();
    return unsupported_key(
        "init_lora_weights",
        fmt::format("\"{}\" changes the base model's weights: save the adapter for the plain base "
                    "model (PEFT: path_initial_model_for_weight_conversion)",
                    printable(name)));
  }

  static bool is_off(const Json& value) {
    return value.is_null() || value == Json(false) ||
           (value.is_array() && value.as_array().empty()) ||
           (value.is_object() && value.as_object().empty()) ||
           (value.is_string() && value.as_string().empty());
  }

  Result<double> positive(std::string_view key) const {
    const Json* const value = json_.find(key);
    const bool number = value != nullptr && value->is_number();
    if (!number || !(value->as_double() > 0) || !(value->as_double() <= 1e6)) {
      return corrupt_key(key, "must be a number in (0, 1e6]");
    }
    return value->as_double();
  }

  Result<LoraPattern> pattern(std::string_view key) const {
    LoraPattern pattern;
    const Json* const value = json_.find(key);
    if (value == nullptr || is_off(*value)) return pattern;
    if (!value->is_object()) return corrupt_key(key, "must be an object");
    for (const auto& [name, number] : value->as_object()) {
      if (name.find_first_of("*+?[](){}|\\$") != name.npos) {
        return unsupported_key(key, fmt::format("\"{}\" is a regular expression: only names of "
                                                "modules are read",
                                                printable(name)));
      }
      if (!number.is_number() || !(number.as_double() > 0) || !(number.as_double() <= 1e6)) {
        return corrupt_key(key, fmt::format("{}: must be a number in (0, 1e6]", printable(name)));
      }
      pattern.emplace_back(name, number.as_double());
    }
    return pattern;
  }

  const Json& json_;
  const std::string& path_;
};

// A name matches as a whole or as its last parts; "^name" as a whole alone. The first that matches
// decides.
double of_module(const LoraPattern& pattern, std::string_view module_name, double otherwise) {
  for (const auto& [key, value] : pattern) {
    const bool whole = key.starts_with('^');
    const std::string_view name = std::string_view(key).substr(whole ? 1 : 0);
    if (module_name == name) return value;
    if (!whole && module_name.size() > name.size() && module_name.ends_with(name) &&
        module_name[module_name.size() - name.size() - 1] == '.') {
      return value;
    }
  }
  return otherwise;
}

Result<LoraConfig> read_lora_config(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kLoraConfigBytesMax) {
    return corrupt(
        fmt::format("{}: {} bytes, it has at most {}", path, bytes.size(), kLoraConfigBytesMax));
  }
  const auto json =
      parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.depth_max = 16});
  if (!json.ok()) return corrupt(fmt::format("{}: {}", path, json.status().message()));
  if (!json->is_object()) return corrupt(fmt::format("{}: must be a JSON object", path));
  return LoraConfigReader(*json, path).read();
}

// --- Pairs of factors ----------------------------------------------------------------------------

// Copies of tensors, read and not mapped: a file that is written anew while a server loads it is an
// error, where a mapping of it would end the server (SIGBUS).
class LoraMemory {
 public:
  explicit LoraMemory(const std::string& path) : path_(path), file_(path, std::ios::binary) {}

  // `bytes`: of the mapping `whole` of the file.
  Result<ConstTensorView> read(std::span<const std::byte> whole, std::span<const std::byte> bytes,
                               DType dtype, const Shape& shape) {
    auto& copy = copies_.emplace_back(bytes.size() / sizeof(double) + 1);
    const auto size = static_cast<std::streamsize>(bytes.size());
    file_.seekg(bytes.data() - whole.data());
    file_.read(reinterpret_cast<char*>(copy.data()), size);
    if (file_.gcount() != size) {
      return corrupt(fmt::format("{}: it became shorter while it was read", path_));
    }
    return ConstTensorView(reinterpret_cast<const std::byte*>(copy.data()), dtype, shape);
  }

 private:
  const std::string path_;
  std::ifstream file_;
  std::deque<std::vector<double>> copies_;  // aligned for all types
};

// A and B of each module, as they are found.
class PairCollector {
 public:
  explicit PairCollector(std::string path) : path_(std::move(path)) {}

  Status add(const std::string& module_name, bool is_a, const ConstTensorView& view) {
    if (view.shape.rank() != 2 || view.rows() < 1 || view.columns() < 1) {
      return corrupt_tensor(module_name, fmt::format("lora_{} has shape {}: it must be a matrix",
                                                     is_a ? 'A' : 'B', view.shape.to_string()));
    }
    (is_a ? pairs_[module_name].first : pairs_[module_name].second) = view;
    return ok_status();
  }

  // `finish(pair, module, rank)` fills in tensor and scale.
  template <class Finish>
  Result<std::vector<LoraPair>> take(const Finish& finish) const {
    std::vector<LoraPair> all;
    for (const auto& [module_name, factors] : pairs_) {
      const auto& [a, b] = factors;
      if (a.data == nullptr || b.data == nullptr) {
        return corrupt_tensor(module_name,
                              fmt::format("lora_{} is missing", a.data == nullptr ? 'A' : 'B'));
      }
      if (a.rows() != b.columns()) {
        return corrupt_tensor(module_name,
                              fmt::format("lora_A has shape {} and lora_B {}: their ranks differ",
                                          a.shape.to_string(), b.shape.to_string()));
      }
      LoraPair pair;
      pair.module_name = module_name;
      pair.a = a;
      pair.b = b;
      HR_RETURN_IF_ERROR(finish(pair));
      all.push_back(std::move(pair));
    }
    if (all.empty()) return corrupt(fmt::format("{}: it holds no adapter", path_));
    std::ranges::sort(all, {}, &LoraPair::tensor);
    const auto twin = std::ranges::adjacent_find(all, {}, &LoraPair::tensor);
    if (twin != all.end()) {
      return corrupt_tensor(twin->module_name, "there are two for one matrix");
    }
    return all;
  }

  Status corrupt_tensor(std::string_view name, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", path_, printable(name), what), std::string(name));
  }
  Status unsupported_tensor(std::string_view name, std::string_view what) const {
    return unsupported(fmt::format("{}: {}: {}", path_, printable(name), what), std::string(name));
  }

 private:
  const std::string path_;
  std::map<std::string, std::pair<ConstTensorView, ConstTensorView>> pairs_;
};

// --- PEFT ----------------------------------------------------------------------------------------

// "base_model.model.<module>.lora_A.weight"
struct PeftName {
  std::string module_name;
  bool is_a;
};
Result<PeftName> peft_name(const PairCollector& pairs, std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  std::string_view rest = name;
  if (rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
  for (const bool is_a : {true, false}) {
    const std::string_view suffix = is_a ? ".lora_A.weight" : ".lora_B.weight";
    if (!rest.ends_with(suffix)) continue;
    rest.remove_suffix(suffix.size());
    return PeftName{std::string(rest), is_a};
  }
  if (rest.find("lora_magnitude_vector") != rest.npos) {
    return pairs.unsupported_tensor(name, "DoRA is not supported: it scales whole weights");
  }
  if (rest.find("lora_embedding_") != rest.npos) {
    return pairs.unsupported_tensor(name, "adapters on embeddings are not supported");
  }
  return pairs.unsupported_tensor(name, "only lora_A and lora_B of matrices are read");
}

Result<LoraFile> read_peft_folder(const std::string& folder, HfTensorNames names) {
  const std::string path = (fs::path(folder) / kLoraWeights).string();
  HR_ASSIGN_OR_RETURN(const LoraConfig config,
                      read_lora_config((fs::path(folder) / kLoraConfig).string()));
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(fs::path(folder) / "adapter_model.bin", ignored)) {
    return unsupported(fmt::format("{}: there is only adapter_model.bin: save the adapter as {}",
                                   folder, kLoraWeights));
  }
  HR_ASSIGN_OR_RETURN(const auto safetensors, SafetensorsFile::open(path));
  auto memory = std::make_shared<LoraMemory>(path);
  PairCollector pairs(path);
  for (const SafetensorsTensor& tensor : safetensors->plan().tensors) {
    HR_ASSIGN_OR_RETURN(const PeftName name, peft_name(pairs, tensor.name));
    if (!tensor.type->dtype || tensor.shape.rank() != 2 || tensor.elements == 0) {
      return pairs.corrupt_tensor(
          tensor.name,
          fmt::format("{} {} is no matrix of floats", tensor.type->name, tensor.shape.to_string()));
    }
    HR_ASSIGN_OR_RETURN(
        const ConstTensorView view,
        memory->read(safetensors->bytes(), tensor.bytes, *tensor.type->dtype, tensor.shape));
    HR_RETURN_IF_ERROR(pairs.add(name.module_name, name.is_a, view));
  }
  LoraFile file;
  file.path = folder;
  HR_ASSIGN_OR_RETURN(file.pairs, pairs.take([&](LoraPair& pair) -> Status {
    const auto match = match_hf_name(names, pair.module_name + ".weight");
    if (!match || match->gguf.empty()) {
      return pairs.unsupported_tensor(pair.module_name,
                                      "the model has no module of this name to adapt");
    }
    if (match->expert >= 0 || !match->second_half.empty()) {
      return pairs.unsupported_tensor(pair.module_name, "adapters on experts are not supported");
    }
    const double said = of_module(config.ranks, pair.module_name, config.rank);
    const auto rank = static_cast<double>(pair.a.rows());
    if (said != rank) {
      return pairs.corrupt_tensor(pair.module_name,
                                  fmt::format("lora_A has shape {}, but {} says rank {}",
                                              pair.a.shape.to_string(), kLoraConfig, said));
    }
    const double alpha = of_module(config.alphas, pair.module_name, config.alpha);
    pair.tensor = match->gguf;
    pair.scale = static_cast<float>(alpha / (config.rank_stabilised ? std::sqrt(rank) : rank));
    return ok_status();
  }));
  file.memory = std::move(memory);
  return file;
}

// --- GGUF ----------------------------------------------------------------------------------------

Result<LoraFile> read_gguf_adapter(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> opened, GgufFile::open(path));
  const GgufFile& gguf = *opened;
  HR_ASSIGN_OR_RETURN(const std::optional<std::string_view> type,
                      gguf.optional_string("general.type"));
  if (type != "adapter") return gguf.corrupt_field("general.type", "must be \"adapter\"");
  HR_ASSIGN_OR_RETURN(const std::string_view kind, gguf.require_string("adapter.type"));
  if (kind != "lora") return gguf.unsupported_field("adapter.type", "only \"lora\" is read");
  HR_ASSIGN_OR_RETURN(const double alpha, gguf.require_float("adapter.lora.alpha"));
  if (!std::isfinite(alpha)) return gguf.corrupt_field("adapter.lora.alpha", "is no number");
  PairCollector pairs(path);
  for (const GgufTensor& tensor : gguf.plan().tensors) {
    const std::string_view name = tensor.name;
    const bool is_a = name.ends_with(".lora_a");
    if (!is_a && !name.ends_with(".lora_b")) {
      return pairs.unsupported_tensor(name, "only lora_a and lora_b of matrices are read");
    }
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, gguf.view(tensor));
    HR_RETURN_IF_ERROR(pairs.add(std::string(name.substr(0, name.size() - 7)), is_a, view));
  }
  LoraFile file;
  file.path = path;
  file.rows_as_gguf = true;
  HR_ASSIGN_OR_RETURN(file.pairs, pairs.take([&](LoraPair& pair) -> Status {
    pair.tensor = pair.module_name;
    pair.scale = alpha == 0 ? 1.0f : static_cast<float>(alpha / static_cast<double>(pair.a.rows()));
    return ok_status();
  }));
  file.memory = opened;
  return file;
}

}  // namespace

const LoraPair* LoraFile::find(std::string_view tensor) const {
  const auto at = std::ranges::lower_bound(pairs, tensor, {}, &LoraPair::tensor);
  return at == pairs.end() || at->tensor != tensor ? nullptr : &*at;
}

uint64_t LoraFile::checksum() const {
  uint64_t sum = rows_as_gguf ? 1 : 0;
  const auto add = [&](std::span<const std::byte> bytes) { sum = checksum64(bytes, sum); };
  for (const LoraPair& pair : pairs) {
    add(std::as_bytes(std::span(pair.tensor)));
    add(std::as_bytes(std::span(&pair.scale, 1)));
    for (const ConstTensorView& factor : {pair.a, pair.b}) {
      add(std::as_bytes(std::span(&factor.dtype, 1)));  // which numbers the bytes are
      add({factor.data, static_cast<size_t>(*tensor_bytes(factor.dtype, factor.shape))});
    }
  }
  return sum == 0 ? 1 : sum;
}

Result<LoraFile> read_lora_file(const std::string& path, HfTensorNames names) {
  std::error_code error;
  if (fs::is_directory(path, error)) return read_peft_folder(path, names);
  if (!fs::exists(path, error)) {
    return not_found(
        fmt::format("{}: there is no such adapter (a PEFT folder, or a .gguf file)", path));
  }
  return read_gguf_adapter(path);
}

}  // namespace headrace
