#include "hub/local_models.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hub/file_choice.h"
#include "hub/model_pull.h"
#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    if (each->is_regular_file(error)) files.push_back(each->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t bytes_of(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

fs::file_time_type time_of(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  return error ? fs::file_time_type() : time;
}

// A snapshot is one model of safetensors, and one for each quant.
void list_snapshot(const std::string& repo, const fs::path& snapshot,
                   std::map<std::string, LocalModel>& models) {
  const bool folder = fs::exists(snapshot / "config.json");
  for (const fs::path& file : files_below(snapshot)) {
    const bool gguf = file.extension() == ".gguf";
    if (!gguf && !folder) continue;
    const std::string quant = gguf ? quant_of_name(file.filename().string()) : "";
    LocalModel& model = models[quant.empty() ? repo : repo + ":" + quant];
    model.format = gguf ? "GGUF" : "safetensors";
    model.bytes += bytes_of(file);
    model.time = std::max(model.time, time_of(file));
  }
}

// "models--maker--model" -> "maker/model"; empty: it is none.
std::string repo_of_folder(const std::string& name) {
  constexpr std::string_view kBegin = "models--";
  if (!name.starts_with(kBegin)) return {};
  const size_t dashes = name.find("--", kBegin.size());
  if (dashes == name.npos) return {};
  const std::string repo =
      name.substr(kBegin.size(), dashes - kBegin.size()) + "/" + name.substr(dashes + 2);
  return is_hub_name(repo) ? repo : std::string();
}

void list_hub(std::map<std::string, LocalModel>& models) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(hub_cache_folder(), error)) {
    const std::string repo = repo_of_folder(entry.path().filename().string());
    if (repo.empty()) continue;
    if (const Result<std::string> main = hub_snapshot(repo); main.ok()) {
      list_snapshot(repo, *main, models);
      continue;
    }
    for (const auto& snapshot : fs::directory_iterator(entry.path() / "snapshots", error)) {
      list_snapshot(repo + "@" + snapshot.path().filename().string(), snapshot.path(), models);
    }
  }
}

// The name under which it was fetched; of a file that somebody put there its path.
std::string name_of_file(const fs::path& file) {
  std::string place = file.lexically_relative(model_files_folder()).string();
  if (place.starts_with("ollama/")) {
    std::string name = place.substr(7, place.size() - 7 - 5);
    if (name.starts_with("library/")) return name.substr(8);
    return "ollama:" + name;
  }
  const size_t slash = place.find('/');
  if (slash == place.npos) return file.string();
  const size_t port = place.find('+');
  if (port < slash) place[port] = ':';
  return "https://" + place;
}

void list_files(std::map<std::string, LocalModel>& models) {
  for (const fs::path& file : files_below(model_files_folder())) {
    if (file.extension() != ".gguf") continue;
    LocalModel& model = models[name_of_file(file)];
    model.format = "GGUF";
    model.bytes = bytes_of(file);
    model.time = time_of(file);
  }
}

bool matches(const fs::path& file, const std::string& quant) {
  return file.extension() == ".gguf" && names_quant(file.filename().string(), quant);
}

// Of blobs that no snapshot names any more.
int64_t remove_unnamed_blobs(const fs::path& folder) {
  std::set<fs::path> named;
  std::error_code error;
  for (const fs::path& file : files_below(folder / "snapshots")) {
    named.insert(fs::weakly_canonical(file, error));
  }
  int64_t freed = 0;
  for (const fs::path& blob : files_below(folder / "blobs")) {
    if (named.contains(fs::weakly_canonical(blob, error))) continue;
    freed += bytes_of(blob);
    fs::remove(blob, error);
  }
  return freed;
}

Result<int64_t> remove_quant(const fs::path& folder, const ModelName& name) {
  int removed = 0;
  std::error_code error;
  for (const fs::path& file : files_below(folder / "snapshots")) {
    if (matches(file, name.quant()) && fs::remove(file, error)) ++removed;
  }
  if (removed == 0) return not_found(fmt::format("{}: there is none on this machine", name.text()));
  const int64_t freed = remove_unnamed_blobs(folder);
  if (files_below(folder / "snapshots").empty()) fs::remove_all(folder, error);
  return freed;
}

}  // namespace

std::vector<LocalModel> local_models() {
  std::map<std::string, LocalModel> named;
  list_hub(named);
  list_files(named);
  std::vector<LocalModel> models;
  for (auto& [name, model] : named) {
    model.name = name;
    models.push_back(std::move(model));
  }
  return models;
}

Result<int64_t> remove_local_model(const ModelName& name) {
  const Status none = not_found(
      fmt::format("{}: there is none on this machine (see 'headrace list')", name.text()));
  std::error_code error;
  if (name.kind() == NameKind::kPath) {
    return invalid_argument(fmt::format(
        "{}: only what was pulled is removed by its name: remove a file with rm", name.text()));
  }
  if (name.kind() != NameKind::kHub) {
    const int64_t bytes = bytes_of(name.file());
    if (!fs::remove(name.file(), error)) return none;
    return bytes;
  }
  const fs::path folder = hub_model_folder(name.repo());
  if (!fs::is_directory(folder, error)) return none;
  if (!name.quant().empty()) return remove_quant(folder, name);
  int64_t freed = 0;
  for (const fs::path& blob : files_below(folder / "blobs")) freed += bytes_of(blob);
  fs::remove_all(folder, error);
  if (error) return unavailable(fmt::format("{}: {}", folder.string(), error.message()));
  return freed;
}

}  // namespace headrace
