#include "stack/hf_folder.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/rwkv_vocab.h"
#include "text/tokenizer_json.h"
#include "weights/architecture_map.h"
#include "weights/generation_config.h"
#include "weights/model_family.h"
#include "weights/safetensors_source.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSmallFileBytesMax = 16 << 20;  // of every file but weights and tokenizer.json

constexpr std::string_view kRwkvVocab = "rwkv_vocab_v20230424.txt";

constexpr size_t kTokenizerBytesMax = 256 << 20;  // the largest known have 35 MB

// "" for nullptr.
std::string_view text_of(const std::shared_ptr<MappedFile>& file) {
  if (file == nullptr) return "";
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

Result<std::string> read_text_file(const fs::path& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path.string()));
  if (file->bytes().size() > kSmallFileBytesMax) {
    return corrupt(fmt::format("{}: {} bytes, such a file has at most {}", path.string(),
                               file->bytes().size(), kSmallFileBytesMax));
  }
  return std::string(text_of(file));
}

Result<Json> read_json_file(const fs::path& path) {
  HR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto json = parse_json(text);
  if (!json.ok()) return json.status().with_context(path.string());
  return json;
}

class HfFolder final : public ModelSource {
 public:
  HfFolder(std::string path, fs::path folder, fs::path config, fs::path weights,
           std::optional<ArchitectureMap> map)
      : map_(std::move(map)),
        path_(std::move(path)),
        folder_(std::move(folder)),
        config_(std::move(config)),
        weights_(std::move(weights)) {}

  SourceKind kind() const override { return SourceKind::kHuggingFace; }
  const std::string& path() const override { return path_; }

  SourceTitle title() const override {
    SourceTitle title{.format = "Hugging Face folder", .name = "", .architecture = ""};
    if (const auto json = read_json_file(config_); json.ok()) {
      title.architecture = first_architecture(*json);
    }
    return title;
  }

  Result<ModelConfig> config() const override {
    return model_config_from_file(config_.string(), map_ ? &*map_ : nullptr);
  }

  Result<std::optional<EncoderConfig>> encoder() const override {
    HR_ASSIGN_OR_RETURN(const Json config_json, read_json_file(config_));
    if (!is_encoder_class(first_architecture(config_json))) return std::optional<EncoderConfig>();
    HR_ASSIGN_OR_RETURN(const PoolingFiles files, pooling_files(config_json));
    HR_ASSIGN_OR_RETURN(EncoderConfig config, encoder_config_from_json(files, folder_.string()));
    return std::optional(std::move(config));
  }

  // What sentence-transformers wrote says it of any class. Without, vectors are those of the last
  // token, of length 1, as vLLM has it.
  Result<std::optional<PoolingConfig>> pooling() const override {
    HR_ASSIGN_OR_RETURN(const Json config_json, read_json_file(config_));
    const std::string hf_class = first_architecture(config_json);
    const HfClassUse use = hf_class_use(hf_class);
    const bool generates = use == HfClassUse::kGenerate && !has("modules.json");
    if (generates || is_encoder_class(hf_class)) return std::optional<PoolingConfig>();
    HR_ASSIGN_OR_RETURN(const PoolingFiles files, pooling_files(config_json));
    HR_ASSIGN_OR_RETURN(
        PoolingConfig config,
        pooling_config_from_json(
            files, use == HfClassUse::kClassify ? PoolingTask::kClassify : PoolingTask::kEmbed,
            {.pooling = Pooling::kLast, .normalise = files.modules.is_null()}, folder_.string()));
    return std::optional(std::move(config));
  }

  Result<std::shared_ptr<WeightSource>> weights(HfTensorNames names, bool tied) const override {
    struct Mapped {  // the source reads the names as long as it lives
      std::shared_ptr<const MappedNames> names;
      std::unique_ptr<WeightSource> source;
    };
    const auto mapped = std::make_shared<Mapped>();
    if (map_) {
      HR_ASSIGN_OR_RETURN(mapped->names, map_->names(names));
      names = mapped->names->rows;
    }
    HR_ASSIGN_OR_RETURN(mapped->source,
                        SafetensorsWeightSource::open(weights_.string(),
                                                      {.names = names, .tied_embeddings = tied}));
    return std::shared_ptr<WeightSource>(mapped, mapped->source.get());
  }

  Result<std::optional<Vocab>> vocab() const override {
    if (!has("tokenizer.json")) return has(kRwkvVocab) ? rwkv_vocab() : no_tokenizer();
    HR_ASSIGN_OR_RETURN(const auto tokenizer, map_file("tokenizer.json", kTokenizerBytesMax));
    HR_ASSIGN_OR_RETURN(const auto config, map_file("tokenizer_config.json", kSmallFileBytesMax));
    HR_ASSIGN_OR_RETURN(const auto special,
                        map_file("special_tokens_map.json", kSmallFileBytesMax));
    auto vocab = vocab_from_tokenizer_json({.tokenizer = text_of(tokenizer),
                                            .tokenizer_config = text_of(config),
                                            .special_tokens_map = text_of(special)});
    if (!vocab.ok()) return vocab.status().with_context(folder_.string());
    return std::optional(std::move(vocab).value());
  }

  // Newer folders have the template in a file of its own, which then counts.
  Result<std::string> chat_template() const override {
    if (has("chat_template.jinja")) return read_text_file(folder_ / "chat_template.jinja");
    for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
      if (!has(name)) continue;
      HR_ASSIGN_OR_RETURN(std::string text, template_in(folder_ / name));
      if (!text.empty()) return text;
    }
    return std::string();
  }

  Result<SamplingDefaults> sampling() const override {
    if (!has("generation_config.json")) return SamplingDefaults();
    return sampling_of_folder(folder_.string());
  }

 private:
  bool has(std::string_view name) const {
    std::error_code ignored;
    return fs::exists(folder_ / name, ignored);
  }

  Result<Json> json_or_null(const std::string& name) const {
    if (!has(name)) return Json();
    HR_ASSIGN_OR_RETURN(Json json, read_json_file(folder_ / name));
    if (json.is_null()) return corrupt(fmt::format("{}: {}: is null", folder_.string(), name));
    return json;
  }

  Result<PoolingFiles> pooling_files(const Json& config) const {
    PoolingFiles files;
    files.config = config;
    HR_ASSIGN_OR_RETURN(files.modules, json_or_null("modules.json"));
    HR_ASSIGN_OR_RETURN(files.library, json_or_null("config_sentence_transformers.json"));
    for (const std::string_view name : sentence_config_files()) {
      if (!has(name)) continue;
      files.sentence_file = name;
      HR_ASSIGN_OR_RETURN(files.sentence, json_or_null(files.sentence_file));
      break;
    }
    const std::string pooling = pooling_folder(files.modules);
    if (!pooling.empty()) {
      HR_RETURN_IF_ERROR(check_module_folder(pooling));
      files.pooling_file = pooling + "/config.json";
      HR_ASSIGN_OR_RETURN(files.pooling, json_or_null(files.pooling_file));
    }
    return files;
  }

  // A module is a folder in this one.
  Status check_module_folder(const std::string& name) const {
    const bool plain = name.find_first_of("/\\") == name.npos && name != "." && name != "..";
    if (plain) return ok_status();
    return corrupt(fmt::format("{}: modules.json: path: {} is no name of a folder",
                               folder_.string(), printable(name)),
                   "path");
  }

  // RWKV's folders have a vocabulary in a form of its own.
  Result<std::optional<Vocab>> rwkv_vocab() const {
    HR_ASSIGN_OR_RETURN(const auto file, map_file(kRwkvVocab, kSmallFileBytesMax));
    auto vocab = rwkv_world_vocab(text_of(file));
    if (!vocab.ok()) return vocab.status().with_context((folder_ / kRwkvVocab).string());
    return std::optional(std::move(vocab).value());
  }

  // A folder that has only an older tokenizer's files is not taken for one without.
  Result<std::optional<Vocab>> no_tokenizer() const {
    for (const char* name : {"tokenizer.model", "vocab.json", "vocab.txt"}) {
      if (!has(name)) continue;
      return unsupported(
          fmt::format("{}: there is no tokenizer.json, and {} is not read: save the tokenizer with "
                      "transformers' AutoTokenizer",
                      folder_.string(), name),
          "tokenizer.json");
    }
    return std::optional<Vocab>();
  }

  // nullptr where there is no such file.
  Result<std::shared_ptr<MappedFile>> map_file(std::string_view name, size_t bytes_max) const {
    if (!has(name)) return std::shared_ptr<MappedFile>();
    HR_ASSIGN_OR_RETURN(auto file, MappedFile::open((folder_ / name).string()));
    if (file->bytes().size() > bytes_max) {
      return corrupt(fmt::format("{}: {} bytes, such a file has at most {}", file->path(),
                                 file->bytes().size(), bytes_max));
    }
    return file;
  }

  static std::string first_architecture(const Json& config) {
    const Json* list = config.find("architectures");
    if (list == nullptr || !list->is_array() || list->as_array().empty()) return "";
    const Json& name = list->as_array().front();
    return name.is_string() ? printable(name.as_string()) : "";
  }

  // "chat_template": a text, or a list of {"name", "template"} of which "default" is taken.
  static Result<std::string> template_in(const fs::path& path) {
    HR_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
    const Json* value = json.find("chat_template");
    if (value == nullptr || value->is_null()) return std::string();
    if (value->is_string()) return value->as_string();
    const Status wrong = corrupt(
        fmt::format("{}: chat_template: is no text and no list of named texts", path.string()),
        "chat_template");
    if (!value->is_array()) return wrong;
    for (const Json& entry : value->as_array()) {
      const Json* name = entry.find("name");
      const Json* text = entry.find("template");
      if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
        return wrong;
      }
      if (name->as_string() == "default") return text->as_string();
    }
    return std::string();
  }

  const std::optional<ArchitectureMap> map_;
  const std::string path_;
  const fs::path folder_, config_, weights_;
};

// A .gguf file in a folder that has no config.json, for the message.
std::string gguf_hint(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    return fmt::format(" (name {} itself)", printable(entry.path().filename().string()));
  }
  return "";
}

}  // namespace

Result<SamplingDefaults> sampling_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "generation_config.json";
  HR_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  return sampling_defaults_from_json(json, path.string());
}

Result<std::unique_ptr<ModelSource>> open_hf_folder(const std::string& path,
                                                    const std::string& map) {
  std::error_code ignored;
  const fs::path given(path);
  const bool is_folder = fs::is_directory(given, ignored);
  const fs::path parent = given.has_parent_path() ? given.parent_path() : fs::path(".");
  const fs::path folder = is_folder ? given : parent;
  const fs::path config = given.extension() == ".json" ? given : folder / "config.json";
  const fs::path weights = given.extension() == ".safetensors" ? given : folder;
  if (!fs::exists(config, ignored)) {
    return not_found(fmt::format("{}: there is no {}{}", path,
                                 is_folder ? "config.json in this folder" : config.string(),
                                 gguf_hint(folder)));
  }
  std::optional<ArchitectureMap> read;
  if (!map.empty()) {
    HR_ASSIGN_OR_RETURN(read, ArchitectureMap::read(map));
  }
  return std::unique_ptr<ModelSource>(
      std::make_unique<HfFolder>(path, folder, config, weights, std::move(read)));
}

}  // namespace headrace
