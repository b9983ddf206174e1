#include "hub/model_pull.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "hub/file_choice.h"
#include "hub/hub_api.h"
#include "stack/default_model.h"
#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOllamaRegistry = "https://registry.ollama.ai";
constexpr const char* kOllamaManifest = "application/vnd.docker.distribution.manifest.v2+json";
constexpr const char* kOllamaModelLayer = "application/vnd.ollama.image.model";
constexpr int64_t kSpareBytes = int64_t{64} << 20;  // left free on the disk

std::string json_text(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

// What of a file need not come any more.
int64_t bytes_there_of(const RemoteFile& file) {
  std::error_code error;
  if (!file.replaces && fs::exists(file.path, error)) return file.size;
  return ranges_on_disk(file.path, identity_of(file), file.size).total();
}

// Whether what lies under the file's path is this version of it, as far as its size and hash say.
bool is_version(const RemoteFile& file) {
  std::error_code error;
  if (static_cast<int64_t>(fs::file_size(file.path, error)) != file.size || error) return false;
  ContentHash hash(file.kind, file.size);
  std::ifstream stream(file.path, std::ios::binary);
  std::string piece(size_t{1} << 20, '\0');
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())) ||
         stream.gcount() > 0) {
    hash.add({piece.data(), static_cast<size_t>(stream.gcount())});
  }
  return hash.finish() == file.hash;
}

// A pull of what is not there leaves alone what another has brought meanwhile.
bool is_another_version(const RemoteFile& file) {
  std::error_code error;
  return fs::exists(file.path, error) && !is_version(file);
}

// By a name beside it, so that it is the old or the new at any moment.
Status write_whole(const fs::path& path, const std::string& text) {
  const fs::path next = path.string() + fmt::format(".{}", ::getpid());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(next);
  file << text;
  file.close();
  if (file) fs::rename(next, path, error);
  if (file && !error) return ok_status();
  fs::remove(next, error);
  return exhausted(fmt::format("{}: cannot be written", path.string()));
}

Status link_to(const fs::path& target, const fs::path& link) {
  std::error_code error;
  fs::create_directories(link.parent_path(), error);
  const fs::path next = link.string() + fmt::format(".{}", ::getpid());
  fs::create_symlink(target.lexically_relative(link.parent_path()), next, error);
  if (!error) fs::rename(next, link, error);
  if (!error) return ok_status();
  return exhausted(fmt::format("{}: {}", link.string(), error.message()));
}

}  // namespace

fs::path hub_model_folder(const std::string& repo) {
  const HubName parts = hub_name_parts(repo);
  return hub_cache_folder() / fmt::format("models--{}--{}", parts.maker, parts.model);
}

Result<ModelPull> ModelPull::plan(const ModelName& name, const PullOptions& options) {
  CHECK(name.kind() != NameKind::kPath);
  HR_RETURN_IF_ERROR(check_online());
  HR_ASSIGN_OR_RETURN(const std::unique_ptr<HttpFetcher> fetcher,
                      HttpFetcher::open(options.stopped));
  ModelPull pull;
  pull.text_ = name.text();
  switch (name.kind()) {
    case NameKind::kHub:
      HR_RETURN_IF_ERROR(pull.plan_hub(*fetcher, name, options.memory_bytes));
      break;
    case NameKind::kOllama:
      HR_RETURN_IF_ERROR(pull.plan_ollama(*fetcher, name));
      break;
    default:
      HR_RETURN_IF_ERROR(pull.plan_url(*fetcher, name));
  }
  pull.host_ = origin_of_url(pull.files_.front().url);
  return pull;
}

Status ModelPull::plan_hub(HttpFetcher& fetcher, const ModelName& name, int64_t memory_bytes) {
  HR_ASSIGN_OR_RETURN(HubApi api, HubApi::open(fetcher));
  HR_ASSIGN_OR_RETURN(const HubModel model, api.model(name.repo(), name.revision()));
  HR_ASSIGN_OR_RETURN(const std::vector<HubFile> files,
                      choose_files(model, name.repo(), name.quant(), memory_bytes));
  folder_ = hub_model_folder(name.repo());
  commit_ = model.commit;
  revision_ = name.revision();
  for (const HubFile& file : files) {
    RemoteFile remote;
    remote.name = file.path;
    remote.url = api.file_url(name.repo(), model.commit, file.path);
    remote.token = api.token();
    remote.size = file.size;
    remote.kind = file.kind;
    remote.hash = file.hash;
    remote.path = folder_ / "blobs" / file.hash;
    files_.push_back(std::move(remote));
  }
  return ok_status();
}

Status ModelPull::plan_ollama(HttpFetcher& fetcher, const ModelName& name) {
  std::string registry = environment("HEADRACE_OLLAMA_REGISTRY");
  if (registry.empty()) registry = kOllamaRegistry;
  const std::string base = fmt::format("{}/v2/{}", registry, name.repo());
  const HttpFetch fetch{.url = fmt::format("{}/manifests/{}", base, name.revision()),
                        .token = {},
                        .accept = kOllamaManifest,
                        .range = {},
                        .if_range = {}};
  Json body;
  HR_ASSIGN_OR_RETURN(const HubAnswer answer, fetch_json(fetcher, fetch, body));
  if (answer.status == 404) {
    return not_found(
        fmt::format("{}: {} has no such model ({}:{}); ollama.com/search lists them, and "
                    "'headrace search WORDS' those of the hub",
                    text_, registry, name.repo(), name.revision()));
  }
  if (answer.status != 200) return status_of_answer(answer.status, text_, answer.url);
  const Json* layers = body.find("layers");
  if (layers != nullptr && layers->is_array()) {
    for (const Json& layer : layers->as_array()) {
      if (json_text(layer.find("mediaType")) != kOllamaModelLayer) continue;
      const Json* size = layer.find("size");
      const std::string digest = json_text(layer.find("digest"));
      if (size == nullptr || !size->is_int() || size->as_int() < 0) continue;
      if (!digest.starts_with("sha256:") || digest.size() != 71 ||
          digest.find_first_not_of("0123456789abcdef", 7) != digest.npos) {
        continue;
      }
      RemoteFile remote;
      remote.name = name.text();
      remote.url = fmt::format("{}/blobs/{}", base, digest);
      remote.size = size->as_int();
      remote.kind = HashKind::kSha256;
      remote.hash = digest.substr(7);
      remote.path = name.file();
      remote.replaces = is_another_version(remote);
      files_ = {std::move(remote)};
      return ok_status();
    }
  }
  return unsupported(fmt::format("{}: its manifest names no model file with a hash", text_));
}

// The size, and the hash where the hub says it, are those of a first byte's answer.
Status ModelPull::plan_url(HttpFetcher& fetcher, const ModelName& name) {
  const HttpFetch fetch{.url = name.text(),
                        .token = hub_token_for(name.text()),
                        .accept = {},
                        .range = ByteRange{0, 1},
                        .if_range = {}};
  HR_ASSIGN_OR_RETURN(const HubAnswer answer, fetch_head(fetcher, fetch));
  if (answer.status != 200 && answer.status != 206) {
    return status_of_answer(answer.status, name.text(), answer.url);
  }
  RemoteFile remote;
  remote.name = name.text();
  remote.url = name.text();
  remote.token = fetch.token;
  remote.path = name.file();
  const auto range = answer.content_range();
  remote.size =
      answer.status == 206 ? (range ? range->second : -1) : answer.content_length().value_or(-1);
  if (remote.size < 0) {
    return unsupported(
        fmt::format("{}: the server does not say how long the file is", name.text()));
  }
  std::string tag = answer.first_header("x-linked-etag");
  std::erase(tag, '"');
  if (tag.size() == 64 && tag.find_first_not_of("0123456789abcdef") == tag.npos) {
    remote.kind = HashKind::kSha256;
    remote.hash = tag;
  }
  remote.version = FileVersion::of(answer);
  remote.replaces = is_another_version(remote);
  files_ = {std::move(remote)};
  return ok_status();
}

int64_t ModelPull::bytes() const {
  int64_t sum = 0;
  for (const RemoteFile& file : files_) sum += file.size;
  return sum;
}

int64_t ModelPull::bytes_missing() const {
  int64_t sum = 0;
  for (const RemoteFile& file : files_) sum += file.size - bytes_there_of(file);
  return sum;
}

Status ModelPull::check_space() const {
  const int64_t missing = bytes_missing();
  fs::path folder = files_.front().path.parent_path();
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs disk;
  if (missing == 0 || ::statvfs(folder.c_str(), &disk) != 0) return ok_status();
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (free >= missing + kSpareBytes) return ok_status();
  return exhausted(
      fmt::format("{}: {} are to come, and {} are free in {}: free some, or name a folder "
                  "of another disk with HF_HOME",
                  text_, bytes_text(missing), bytes_text(free), folder.string()));
}

Status ModelPull::link_snapshot() const {
  std::error_code error;
  for (const RemoteFile& file : files_) {
    if (!fs::exists(file.path, error)) {
      return unavailable(
          fmt::format("{}: {} was removed while the others came: pull it again", text_, file.name));
    }
    HR_RETURN_IF_ERROR(link_to(file.path, folder_ / "snapshots" / commit_ / file.name));
  }
  return revision_ == commit_ ? ok_status() : write_whole(folder_ / "refs" / revision_, commit_);
}

Result<std::string> ModelPull::run(const PullOptions& options,
                                   const std::function<void(int64_t)>& progress) {
  HR_RETURN_IF_ERROR(check_space());
  int64_t before = 0;
  DownloadHooks hooks;
  hooks.stopped = options.stopped;
  hooks.connections = options.connections;
  hooks.progress = [&](int64_t bytes) { progress(before + bytes); };
  for (const RemoteFile& file : files_) {
    HR_RETURN_IF_ERROR(FileDownload::run(file, hooks));
    before += file.size;
    progress(before);
  }
  if (!commit_.empty()) HR_RETURN_IF_ERROR(link_snapshot());
  return text_;
}

}  // namespace headrace
