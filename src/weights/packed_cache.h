// A model's matrices as the CPU's kernels want them, kept in a file between runs: a later start
// maps it instead of packing. The pages are the page cache's, shared by all processes that run the
// model, and huge where the file system keeps large pieces (ext4 and xfs do: the file is written 8
// MiB at a time, on boundaries of 2 MiB).
//
// Nothing of it is trusted: the name holds a checksum of a key that says of what, by which program
// and how it was packed; header and contents have checksums, all checked when the file is opened. A
// file that is not right counts as none, and is written anew.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "tensor/thread_pool.h"

namespace headrace {

class PackedCache {
 public:
  // The file of `model` (for people) and `key` in `folder`, whether it is there or not. Checks its
  // contents on all threads of the pool.
  static std::unique_ptr<PackedCache> open(const std::string& folder, std::string_view model,
                                           std::string_view key, ThreadPool& pool);

  // Whether find() may find something; else add() gathers what write() writes.
  bool hit() const { return mapping_ != nullptr; }
  // What was added under this name when the file was written; valid as long as this object.
  std::optional<std::span<const std::byte>> find(std::string_view name) const;
  // REQUIRES: !hit(); `bytes` stay as they are until write() has returned; a multiple of 64 of them
  void add(std::string_view name, std::span<const std::byte> bytes);
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }  // found or added

  // Writes what was added beside the file and puts it in its place. Then files of the folder that
  // were not used for the longest time go, until the rest has at most `folder_bytes_max`. Errors
  // name the file: no room, no right to write.
  Status write(int64_t folder_bytes_max);
  const std::string& path() const { return path_; }

 private:
  struct Piece {
    char name[48];
    uint64_t offset;  // from the payload's beginning
    uint64_t size;
  };
  struct Header;
  struct Contents;
  explicit PackedCache(std::string path) : path_(std::move(path)) {}
  static uint64_t payload_offset(uint64_t piece_count, uint64_t payload_bytes);
  void map(ThreadPool& pool);
  std::optional<Contents> read_contents(std::span<const std::byte> file) const;
  Status write_payload(int fd, std::vector<uint64_t>& sums) const;

  const std::string path_;
  std::shared_ptr<MappedFile> mapping_;  // null: no such file
  std::span<const std::byte> payload_;
  std::vector<Piece> pieces_;                                 // in the order of the file
  std::unordered_map<std::string_view, const Piece*> found_;  // of a file
  std::vector<std::span<const std::byte>> memory_;            // of added pieces
  uint64_t bytes_ = 0;
};

}  // namespace headrace
