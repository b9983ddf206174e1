#include "hub/local_models.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hub/file_choice.h"
#include "hub/model_pull.h"
#include "hub/part_file.h"
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
  return error ? LocalModel().time : time;
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

std::string first_word(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// A pull that runs holds the part of the file that comes.
bool is_being_pulled(const fs::path& folder) {
  const std::vector<fs::path> files = files_below(folder / "blobs");
  return std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return file.extension() == ".part" && is_in_use(file);
  });
}

// Of `files` of snapshots, and of the blobs behind them those that no snapshot names any more.
// Other blobs may be of a pull, which names them when it has all. The bytes that became free.
int64_t remove_files(const fs::path& folder, const std::vector<fs::path>& files) {
  std::error_code error;
  const fs::path blobs = fs::weakly_canonical(folder / "blobs", error);
  std::set<fs::path> unnamed;
  int64_t freed = 0;
  for (const fs::path& file : files) {
    const fs::path blob = fs::weakly_canonical(file, error);
    if (blob.parent_path() == blobs) unnamed.insert(blob);
    if (!fs::is_symlink(file, error)) freed += bytes_of(file);
    fs::remove(file, error);
  }
  for (const fs::path& file : files_below(folder / "snapshots")) {
    unnamed.erase(fs::weakly_canonical(file, error));
  }
  for (const fs::path& blob : unnamed) {
    freed += bytes_of(blob);
    fs::remove(blob, error);
  }
  const bool empty =
      files_below(folder / "snapshots").empty() && files_below(folder / "blobs").empty();
  if (empty) fs::remove_all(folder, error);
  return freed;
}

int64_t remove_snapshot(const fs::path& folder, const fs::path& snapshot) {
  const int64_t freed = remove_files(folder, files_below(snapshot));
  std::error_code error;
  fs::remove_all(snapshot, error);
  return freed;
}

// A branch or tag, and its snapshot where no other names it; of a commit all that name it.
int64_t remove_revision(const fs::path& folder, const fs::path& snapshot,
                        const std::string& revision) {
  const std::string commit = snapshot.filename().string();
  const fs::path ref = folder / "refs" / revision;
  std::vector<fs::path> others;
  for (const fs::path& each : files_below(folder / "refs")) {
    if (each != ref && first_word(each) == commit) others.push_back(each);
  }
  std::error_code error;
  if (fs::remove(ref, error) && !others.empty()) return 0;
  for (const fs::path& each : others) fs::remove(each, error);
  return remove_snapshot(folder, snapshot);
}

Result<int64_t> remove_of_hub(const ModelName& name, const Status& none) {
  const fs::path folder = hub_model_folder(name.repo());
  const bool revision_named = name.text().find('@') != std::string::npos;
  const Result<std::string> snapshot = hub_snapshot(name.repo() + "@" + name.revision());
  std::error_code error;
  if (!fs::is_directory(folder, error) || (revision_named && !snapshot.ok())) return none;
  if (!name.quant().empty()) {
    std::vector<fs::path> files =
        files_below(revision_named ? fs::path(*snapshot) : folder / "snapshots");
    std::erase_if(files, [&](const fs::path& file) { return !matches(file, name.quant()); });
    if (files.empty()) return none;
    return remove_files(folder, files);
  }
  if (revision_named) return remove_revision(folder, *snapshot, name.revision());
  if (is_being_pulled(folder)) {
    return unavailable(fmt::format(
        "{}: it is being pulled: end that first (Ctrl-C), or name a quant or a revision",
        name.text()));
  }
  int64_t freed = 0;
  for (const fs::path& blob : files_below(folder / "blobs")) freed += bytes_of(blob);
  fs::remove_all(folder, error);
  if (error) return unavailable(fmt::format("{}: {}", folder.string(), error.message()));
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
  return remove_of_hub(name, none);
}

}  // namespace headrace
