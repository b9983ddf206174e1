// Files that are there as a whole or not at all, also after a crash: written beside their place,
// forced to the disk, then renamed. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

inline constexpr std::string_view kUnfinishedSuffix = ".tmp";

// An error says why and leaves nothing behind: kExhausted when the disk is full (or a quota on it),
// else kInternal. Errors name the path.
Status write_durably(const std::string& path, std::string_view content);

// A file that grows in pieces and is not seen before commit().
class DurableFile {
 public:
  static Result<DurableFile> create(std::string path);
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();  // what was not committed is removed

  Status append(std::string_view bytes);
  Status commit();  // once, last
  size_t size() const { return size_; }

 private:
  DurableFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Status flush();
  std::string path_;
  int file_;  // -1: committed or moved from
  std::string buffer_;
  size_t size_ = 0;
};

// Makes the folder and those above it, for its owner alone. An error names it.
Status make_folder(const std::string& folder);
// The files of a folder, in no order; what a crash left unfinished is removed.
Result<std::vector<std::filesystem::path>> files_in(const std::string& folder);
// Renames within a folder are on the disk after this.
Status sync_folder(const std::string& folder);
// "path: what: why", by errno: kExhausted for a full disk.
Status disk_error(const std::string& path, std::string_view what);
// The whole descriptor gets the bytes.
bool write_all(int file, std::string_view bytes);

}  // namespace headrace
