#include "server/file_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/mapped_file.h"
#include "server/durable_file.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCardSuffix = ".json", kContentSuffix = ".data";

// What a card holds beside the numbers, which are below.
struct TextRow {
  std::string_view name;
  std::string StoredFile::*member;
};
constexpr TextRow kTextRows[] = {{"id", &StoredFile::id},
                                 {"owner", &StoredFile::owner},
                                 {"filename", &StoredFile::filename},
                                 {"purpose", &StoredFile::purpose}};
struct NumberRow {
  std::string_view name;
  int64_t StoredFile::*member;
};
constexpr NumberRow kNumberRows[] = {{"bytes", &StoredFile::bytes},
                                     {"created_at", &StoredFile::created_unix_s},
                                     {"expires_at", &StoredFile::expires_unix_s}};

Json card_of(const StoredFile& file) {
  Json card = Json::object();
  for (const TextRow& row : kTextRows) card.set(row.name, file.*row.member);
  for (const NumberRow& row : kNumberRows) card.set(row.name, file.*row.member);
  return card;
}

Result<StoredFile> read_card(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  HR_ASSIGN_OR_RETURN(const Json json,
                      parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  StoredFile card;
  for (const TextRow& row : kTextRows) {
    const Json* value = json.find(row.name);
    if (!value || !value->is_string()) return corrupt(fmt::format("{} is missing", row.name));
    card.*row.member = value->as_string();
  }
  for (const NumberRow& row : kNumberRows) {
    const Json* value = json.find(row.name);
    if (!value || !value->is_int()) return corrupt(fmt::format("{} is missing", row.name));
    card.*row.member = value->as_int();
  }
  return card;
}

bool is_there(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

}  // namespace

Json file_json(const StoredFile& file) {
  Json json = Json::object();
  json.set("id", file.id).set("object", "file").set("bytes", file.bytes);
  json.set("created_at", file.created_unix_s);
  json.set("expires_at", file.expires_unix_s > 0 ? Json(file.expires_unix_s) : Json());
  json.set("filename", file.filename).set("purpose", file.purpose).set("status", "processed");
  return json;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& folder, FileLimits limits) {
  HR_RETURN_IF_ERROR(make_folder(folder));
  std::unique_ptr<FileStore> store(new FileStore(folder, limits));
  HR_RETURN_IF_ERROR(store->load());
  return store;
}

Status FileStore::load() {
  std::vector<StoredFile> found;
  std::vector<fs::path> contents;
  HR_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, files_in(folder_));
  for (const fs::path& path : paths) {
    if (path.extension() == kContentSuffix) contents.push_back(path);
    if (path.extension() != kCardSuffix) continue;
    Result<StoredFile> card = read_card(path);
    if (card.ok() && card->id == path.stem() && is_there(content_path(card->id))) {
      found.push_back(std::move(*card));
    } else {
      log_warning("{}: is no card of a file with its content: left out", path.string());
    }
  }
  std::sort(found.begin(), found.end(), [](const StoredFile& a, const StoredFile& b) {
    return std::tie(a.created_unix_s, a.id) < std::tie(b.created_unix_s, b.id);
  });
  for (StoredFile& file : found) {
    Use& use = uses_[file.owner];
    ++use.files;
    use.bytes += file.bytes;
    add(std::move(file));
  }
  for (const fs::path& path : contents) {  // their upload was not told to be done
    if (!entries_.count(path.stem())) ::unlink(path.c_str());
  }
  return ok_status();
}

std::string FileStore::card_path(const std::string& id) const {
  return fmt::format("{}/{}{}", folder_, id, kCardSuffix);
}

std::string FileStore::content_path(const std::string& id) const {
  return fmt::format("{}/{}{}", folder_, id, kContentSuffix);
}

Status FileStore::reserve(const std::string& owner, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Use& use = uses_[owner];
  if (use.files + 1 > limits_.files_max) {
    return invalid_argument(fmt::format("there are {} files and may be {}: delete some first",
                                        use.files, limits_.files_max),
                            "file");
  }
  if (use.bytes + bytes > limits_.bytes_max) {
    return invalid_argument(
        fmt::format("the file has {} bytes, and of {} for all files {} are left: delete some first",
                    bytes, limits_.bytes_max, std::max<int64_t>(0, limits_.bytes_max - use.bytes)),
        "file");
  }
  ++use.files;
  use.bytes += bytes;
  return ok_status();
}

void FileStore::release(const std::string& owner, int64_t bytes) {
  std::lock_guard lock(mutex_);
  unreserve(owner, bytes);
}

void FileStore::unreserve(const std::string& owner, int64_t bytes) {
  Use& use = uses_[owner];
  --use.files;
  use.bytes -= bytes;
}

void FileStore::add(StoredFile file) {
  std::string id = file.id;
  entries_[std::move(id)] = {std::move(file), next_serial_++};
}

Status FileStore::write_card(const StoredFile& file) const {
  return write_durably(card_path(file.id), write_json(card_of(file)));
}

void FileStore::unlink_both(const std::string& id) const {
  // The card first: without one, content that a crash leaves is removed at the next start.
  ::unlink(card_path(id).c_str());
  ::unlink(content_path(id).c_str());
}

Result<StoredFile> FileStore::upload(StoredFile file, std::string_view content) {
  if (file.id.empty()) file.id = "file-" + random_hex_id();
  file.bytes = static_cast<int64_t>(content.size());
  HR_RETURN_IF_ERROR(reserve(file.owner, file.bytes));
  Status status = write_durably(content_path(file.id), content);
  if (status.ok()) status = write_card(file);
  if (!status.ok()) unlink_both(file.id);
  std::lock_guard lock(mutex_);
  if (!status.ok()) {
    unreserve(file.owner, file.bytes);
    return status;
  }
  add(file);
  return file;
}

Result<StoredFile> FileStore::adopt(StoredFile file, const std::string& path) {
  std::error_code error;
  file.bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error || ::rename(path.c_str(), content_path(file.id).c_str()) != 0) {
    return disk_error(path, "cannot be moved to the files");
  }
  const Status written = write_card(file);
  std::lock_guard lock(mutex_);
  const auto replaced = entries_.find(file.id);
  if (!written.ok()) {  // no card names it, but for one of before
    if (replaced == entries_.end()) ::unlink(content_path(file.id).c_str());
    return written;
  }
  if (replaced != entries_.end()) unreserve(file.owner, replaced->second.file.bytes);
  Use& use = uses_[file.owner];
  ++use.files;
  use.bytes += file.bytes;
  add(file);
  return file;
}

std::optional<StoredFile> FileStore::find(const std::string& owner, const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.file.owner != owner) return std::nullopt;
  return found->second.file;
}

Result<FilePage> FileStore::list(const std::string& owner, const FileQuery& query) const {
  std::vector<const Entry*> mine;
  std::lock_guard lock(mutex_);
  for (const auto& [_, entry] : entries_) {
    const bool wanted = query.purpose.empty() || entry.file.purpose == query.purpose;
    if (entry.file.owner == owner && wanted) mine.push_back(&entry);
  }
  std::sort(mine.begin(), mine.end(), [&](const Entry* a, const Entry* b) {
    return query.oldest_first ? a->serial < b->serial : a->serial > b->serial;
  });
  auto first = mine.begin();
  if (!query.after.empty()) {
    first = std::find_if(mine.begin(), mine.end(),
                         [&](const Entry* entry) { return entry->file.id == query.after; });
    if (first == mine.end()) return invalid_argument("after names no file of the list", "after");
    ++first;
  }
  FilePage page;
  for (; first != mine.end() && page.files.size() < query.limit; ++first) {
    page.files.push_back((*first)->file);
  }
  page.has_more = first != mine.end();
  return page;
}

Status FileStore::remove(const std::string& owner, const std::string& id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.file.owner != owner) {
      return not_found("there is no file of that id");
    }
    unreserve(owner, found->second.file.bytes);
    entries_.erase(found);
  }
  unlink_both(id);
  return ok_status();
}

void FileStore::remove_expired(int64_t now_unix_s) {
  std::vector<std::pair<std::string, std::string>> expired;  // owner, id
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      const int64_t end = entry.file.expires_unix_s;
      if (end > 0 && end <= now_unix_s) expired.emplace_back(entry.file.owner, id);
    }
  }
  for (const auto& [owner, id] : expired) static_cast<void>(remove(owner, id));
}

int64_t FileStore::bytes_total() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [_, use] : uses_) bytes += use.bytes;
  return bytes;
}

size_t FileStore::file_count() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace headrace
