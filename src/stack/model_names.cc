#include "stack/model_names.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "stack/default_model.h"
#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefixes[] = {"hf:", "https://huggingface.co/", "https://hf.co/",
                                             "huggingface.co/", "hf.co/"};
constexpr std::string_view kOllamaPrefix = "ollama:";
constexpr size_t kNameBytesMax = 1024;  // of a whole name; a part is a file's name, 200 at most
constexpr size_t kWordBytesMax = 200;

// A file's name that is visible and leads nowhere.
bool is_name_word(std::string_view text) {
  return !text.empty() && text.size() <= kWordBytesMax && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
         });
}

// Words with slashes between them.
bool is_word_path(std::string_view text) {
  for (size_t slash = text.find('/'); slash != text.npos; slash = text.find('/')) {
    if (!is_name_word(text.substr(0, slash))) return false;
    text.remove_prefix(slash + 1);
  }
  return is_name_word(text);
}

bool ends_as_a_model_file(const std::string& text) {
  return text.ends_with(".gguf") || text.ends_with(".json") || text.ends_with(".safetensors");
}

// "https://host:80/folder/model.gguf?download=true" -> "host:80/folder/model.gguf"
std::string_view place_of_url(std::string_view url) {
  url.remove_prefix(url.find("://") + 3);
  return url.substr(0, url.find_first_of("?#"));
}

bool is_snapshot_folder(const std::string& snapshot) {
  std::error_code ignored;
  return fs::exists(fs::path(snapshot) / "config.json", ignored);
}

Result<std::string> local_hub_model(const ModelName& name, const std::string& revision) {
  const std::string& of = revision.empty() ? name.revision() : revision;
  if (name.quant().empty()) {
    const std::string plain = of == "main" ? name.repo() : name.repo() + "@" + of;
    HR_ASSIGN_OR_RETURN(const std::string snapshot, hub_snapshot(plain));
    if (is_snapshot_folder(snapshot)) return plain;
    return hub_gguf(name.repo(), "", of);
  }
  return hub_gguf(name.repo() + ":" + name.quant(), "", of);
}

}  // namespace

Result<ModelName> ModelName::read(const std::string& text) {
  std::error_code ignored;
  const bool may_be_a_path = text.size() <= kNameBytesMax && text.find('\0') == text.npos;
  if (!may_be_a_path || !fs::exists(text, ignored)) return read_name(text);
  ModelName path;
  path.text_ = text;
  return path;
}

Result<ModelName> ModelName::read_name(const std::string& text) {
  ModelName name;
  name.text_ = text;
  if (text.size() > kNameBytesMax || text.find('\0') != text.npos) {
    return invalid_argument("a model's name has 1024 bytes at most, and no NUL in it");
  }
  if (text.empty()) return name;
  if (text.starts_with(kOllamaPrefix)) {
    HR_RETURN_IF_ERROR(name.read_ollama(text.substr(kOllamaPrefix.size())));
    return name;
  }
  const bool file_address = text.find("://") != text.npos && place_of_url(text).ends_with(".gguf");
  for (const std::string_view prefix : kHubPrefixes) {
    if (!text.starts_with(prefix) || file_address) continue;
    HR_RETURN_IF_ERROR(name.read_hub(text.substr(prefix.size())));
    return name;
  }
  if (text.find("://") != text.npos) {
    HR_RETURN_IF_ERROR(name.read_url());
    return name;
  }
  const bool slash = text.find('/') != text.npos;
  if (ends_as_a_model_file(text)) return name;
  if (slash ? name.read_hub(text).ok() : name.read_ollama(text).ok()) return name;
  ModelName path;
  path.text_ = text;
  return path;
}

Status ModelName::read_hub(std::string text) {
  const size_t slash = text.find('/');
  const size_t colon = slash == text.npos ? text.npos : text.find(':', slash);
  quant_ = colon == text.npos ? "" : text.substr(colon + 1);
  const std::string plain = text.substr(0, colon);
  if (!is_hub_name(plain) || (colon != text.npos && !is_name_word(quant_))) {
    return invalid_argument(
        fmt::format("{}: expected USER/MODEL, USER/MODEL@REVISION or USER/MODEL:QUANT", text_));
  }
  const HubName parts = hub_name_parts(plain);
  kind_ = NameKind::kHub;
  repo_ = parts.maker + "/" + parts.model;
  revision_ = parts.revision;
  return ok_status();
}

Status ModelName::read_ollama(std::string text) {
  const size_t colon = text.rfind(':');
  const std::string repo = text.substr(0, colon);
  revision_ = colon == text.npos ? "latest" : text.substr(colon + 1);
  const bool spaced = repo.find('/') != repo.npos;
  repo_ = spaced ? repo : "library/" + repo;
  if (!is_word_path(repo_) || std::count(repo_.begin(), repo_.end(), '/') != 1 ||
      !is_name_word(revision_)) {
    return invalid_argument(
        fmt::format("{}: expected ollama:MODEL:TAG or ollama:USER/MODEL:TAG", text_));
  }
  kind_ = NameKind::kOllama;
  return ok_status();
}

Status ModelName::read_url() {
  std::string place(place_of_url(text_));
  std::replace(place.begin(), place.end(), ':', '+');  // of a port
  const bool web = text_.starts_with("https://") || text_.starts_with("http://");
  if (!web || !is_word_path(place) || !place.ends_with(".gguf") || place.find('/') == place.npos) {
    return invalid_argument(fmt::format(
        "{}: expected the address of a .gguf file, https://HOST/PATH.gguf, of plain characters",
        text_));
  }
  kind_ = NameKind::kUrl;
  repo_ = place;
  return ok_status();
}

fs::path ModelName::file() const {
  CHECK(kind_ == NameKind::kOllama || kind_ == NameKind::kUrl);
  if (kind_ == NameKind::kUrl) return model_files_folder() / repo_;
  const std::string tag = revision_ == "latest" ? "" : ":" + revision_;
  return model_files_folder() / "ollama" / (repo_ + tag + ".gguf");
}

Result<std::string> local_model(const std::string& text, const std::string& revision) {
  HR_ASSIGN_OR_RETURN(const ModelName name, ModelName::read(text));
  return local_model(name, revision);
}

Result<std::string> local_model(const ModelName& name, const std::string& revision) {
  const std::string& text = name.text();
  if (name.kind() == NameKind::kPath) return text;
  if (name.kind() == NameKind::kHub) return local_hub_model(name, revision);
  std::error_code ignored;
  if (fs::is_regular_file(name.file(), ignored)) return name.file().string();
  return not_found(fmt::format(
      "{}: there is no such file or folder, nor a model of that name on this machine: fetch it "
      "first ('headrace pull {}')",
      text, text));
}

fs::path model_files_folder() { return program_cache_folder() / "models"; }

}  // namespace headrace
