// The files of /v1/files: what clients uploaded for batches, and what batches answered. They lie in
// a folder, two a file: ID.json says whose it is, ID.data is its content; a file is there when its
// ID.json is. Any thread; calls that write wait for the disk, so not on the server's threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

// Of each owner (API key); a server without keys has one owner.
struct FileLimits {
  int64_t bytes_max = int64_t{4} << 30;
  int64_t files_max = 1000;
};

struct StoredFile {
  std::string id;        // "file-..."
  std::string owner;     // only its owner sees a file
  std::string filename;  // as the client named it; never a path here
  std::string purpose;   // "batch", "batch_output"
  int64_t bytes = 0;
  int64_t created_unix_s = 0;
  int64_t expires_unix_s = 0;  // 0: never
};

// Which files of a list: those behind `after` in the order asked for, at most `limit`.
struct FileQuery {
  std::string after;
  std::string purpose;  // empty: any
  size_t limit = 10'000;
  bool oldest_first = false;
};

struct FilePage {
  std::vector<StoredFile> files;
  bool has_more = false;
};

class FileStore {
 public:
  // Makes the folder, reads what is there, removes what a crash left half done. A file that cannot
  // be read is left out with a warning.
  static Result<std::unique_ptr<FileStore>> open(const std::string& folder, FileLimits limits);

  // Keeps `content` under file.id, or a new id when that is empty; `bytes` is set here. An upload
  // over the owner's limits is kInvalidArgument; a full disk is kExhausted.
  Result<StoredFile> upload(StoredFile file, std::string_view content);
  // Makes the finished file at `path` (in the same file system) the content of file.id; a file of
  // that id is replaced. Not refused for the owner's limits: answers are not lost to them.
  Result<StoredFile> adopt(StoredFile file, const std::string& path);

  // Keeps room among the owner's files for one that is still to come; release() gives it back.
  // kInvalidArgument: there is none.
  Status reserve(const std::string& owner, int64_t bytes);
  void release(const std::string& owner, int64_t bytes);

  std::optional<StoredFile> find(const std::string& owner, const std::string& id) const;
  // kInvalidArgument when `after` is no file of the owner.
  Result<FilePage> list(const std::string& owner, const FileQuery& query) const;
  // The place of its content: readable until remove(), and longer by who has it open.
  std::string content_path(const std::string& id) const;
  // kNotFound when the owner has no such file.
  Status remove(const std::string& owner, const std::string& id);
  void remove_expired(int64_t now_unix_s);

  int64_t bytes_total() const;
  size_t file_count() const;

 private:
  struct Entry {
    StoredFile file;
    uint64_t serial = 0;  // in order of creation
  };
  struct Use {
    int64_t bytes = 0, files = 0;
  };

  FileStore(std::string folder, FileLimits limits) : folder_(std::move(folder)), limits_(limits) {}
  Status load();
  void unreserve(const std::string& owner, int64_t bytes);
  void add(StoredFile file);
  Status write_card(const StoredFile& file) const;
  std::string card_path(const std::string& id) const;
  void unlink_both(const std::string& id) const;

  const std::string folder_;
  const FileLimits limits_;
  mutable std::mutex mutex_;              // of all below; never held while the disk is written
  std::map<std::string, Entry> entries_;  // by id
  std::map<std::string, Use> uses_;       // by owner, with uploads under way
  uint64_t next_serial_ = 0;
};

// As the API has it.
Json file_json(const StoredFile& file);

}  // namespace headrace
