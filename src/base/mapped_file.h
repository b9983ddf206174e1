// A file mapped read-only and private. Bytes are valid for the life of the object.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace headrace {

class MappedFile {
 public:
  // Errors name the path. An empty file maps to an empty span.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that these bytes are not needed in memory any more (they are read again from
  // the file when touched). The range is shrunk to whole pages. Any thread.
  void release(std::span<const std::byte> range) const;
  // Asks for large pages where the file system can keep them.
  void use_huge_pages() const;
  // Asks for read-ahead of the whole file.
  void will_need() const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace headrace
