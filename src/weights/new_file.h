// A file of a known size that is written through a mapping: its head at once, the rest in any
// order, from as many threads as there are.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace headrace {

enum class OldFile {
  kReplace,   // what is there already goes
  kContinue,  // kept where it has this size and head; else it goes, too
};

class NewFile {
 public:
  // All its room is on the disk when this returns, so that writing cannot fail later. Errors name
  // the path: no such folder, no room.
  static Result<std::unique_ptr<NewFile>> create(const std::string& path, std::string_view head,
                                                 size_t bytes, OldFile old = OldFile::kReplace);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  std::span<std::byte> bytes() const { return mapping_; }
  bool continued() const { return continued_; }
  // What has been written is on the disk when this returns.
  Status flush() const;

 private:
  NewFile(std::string path, std::span<std::byte> mapping, bool continued)
      : path_(std::move(path)), mapping_(mapping), continued_(continued) {}

  const std::string path_;
  const std::span<std::byte> mapping_;
  const bool continued_;
};

}  // namespace headrace
