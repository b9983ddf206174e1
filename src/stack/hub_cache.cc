#include "stack/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stack/default_model.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

bool is_word(std::string_view text) {
  return !text.empty() && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// A branch, tag or commit: words with slashes between them, none of which leads out of refs/.
bool is_revision(std::string_view text) {
  for (size_t slash = text.find('/'); slash != text.npos; slash = text.find('/')) {
    if (!is_word(text.substr(0, slash))) return false;
    text.remove_prefix(slash + 1);
  }
  return is_word(text);
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Whether `word` stands in `text` with no letter or digit beside it: not "Q4_0" in "Q4_0_4_4".
bool has_word(const std::string& text, const std::string& word) {
  const auto part = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !part(at - 1)) && !part(at + word.size())) return true;
  }
  return false;
}

// Of a snapshot, by name, without those that hold no language model.
std::vector<std::string> gguf_files(const fs::path& snapshot) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator each(snapshot, error), end; !error && each != end;
       each.increment(error)) {
    const fs::path& path = each->path();
    if (path.extension() != ".gguf" || path.filename().string().starts_with("mmproj")) continue;
    files.push_back(path.lexically_relative(snapshot).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

fs::path hub_cache_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return user_cache_folder() / "huggingface" / "hub";
}

bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == name.npos) return false;
  const size_t at = name.find('@', slash);
  const std::string_view text(name);
  if (at != name.npos && !is_revision(text.substr(at + 1))) return false;
  return is_word(text.substr(0, slash)) && is_word(text.substr(0, at).substr(slash + 1));
}

HubName hub_name_parts(const std::string& name) {
  const size_t slash = name.find('/');
  const size_t at = std::min(name.find('@', slash), name.size());
  return {name.substr(0, slash), name.substr(slash + 1, at - slash - 1),
          at == name.size() ? "main" : name.substr(at + 1)};
}

Result<std::string> hub_snapshot(const std::string& name) {
  const HubName parts = hub_name_parts(name);
  const fs::path hub = hub_cache_folder();
  const fs::path model = hub / fmt::format("models--{}--{}", parts.maker, parts.model);
  std::string commit;
  std::ifstream(model / "refs" / parts.revision) >> commit;
  if (commit.empty()) commit = parts.revision;  // it may be a commit itself
  const fs::path snapshot = model / "snapshots" / commit;
  std::error_code ignored;
  if (is_word(commit) && fs::is_directory(snapshot, ignored)) return snapshot.string();
  const std::string revision = parts.revision == "main" ? "" : "@" + parts.revision;
  return not_found(fmt::format(
      "{}: there is no such file or folder, nor a model of that name in {}: fetch it first "
      "('headrace pull {}/{}{}')",
      name, hub.string(), parts.maker, parts.model, revision));
}

std::optional<SplitName> split_name(const std::string& stem) {
  const size_t of = stem.rfind("-of-");
  const bool is_part = of != stem.npos && of >= 6 && stem[of - 6] == '-' &&
                       stem.find_first_not_of("0123456789", of - 5) == of;
  if (!is_part) return std::nullopt;
  return SplitName{stem.substr(0, of - 6), stem.substr(of - 5, 5)};
}

bool names_quant(const std::string& file, const std::string& quant) {
  return has_word(upper(file), upper(quant));
}

Result<std::string> hub_gguf(const std::string& repo, const std::string& file,
                             const std::string& revision) {
  const size_t colon = repo.find(':');
  std::string name = repo.substr(0, colon);
  if (!is_hub_name(name) || name.find('@') != name.npos) {
    return invalid_argument(
        fmt::format("--hf-repo {}: expected USER/MODEL or USER/MODEL:QUANT", repo));
  }
  if (!revision.empty()) name += "@" + revision;
  HR_ASSIGN_OR_RETURN(const std::string snapshot, hub_snapshot(name));
  const std::vector<std::string> files = gguf_files(snapshot);
  const std::string quant = colon == repo.npos ? "" : repo.substr(colon + 1);
  const auto with = [&](const std::string& word) {
    return std::find_if(files.begin(), files.end(),
                        [&](const std::string& each) { return names_quant(each, word); });
  };
  auto found = file.empty() ? with(quant.empty() ? "Q4_K_M" : quant)
                            : std::find(files.begin(), files.end(), file);
  if (file.empty() && quant.empty() && found == files.end()) found = files.begin();
  if (found != files.end()) return (fs::path(snapshot) / *found).string();
  return not_found(fmt::format("{}: no {} in {}; .gguf files there: {}", repo,
                               !file.empty()    ? file
                               : !quant.empty() ? quant
                                                : ".gguf file",
                               snapshot,
                               files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", "))));
}

}  // namespace headrace
