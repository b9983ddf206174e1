#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

constexpr uintptr_t kFilePage = 4096;

Status errno_status(const std::string& path, const char* what, int error) {
  const std::string text = path + ": " + what + ": " + std::strerror(error);
  return error == ENOENT ? not_found(text) : invalid_argument(text);
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: the opening of a pipe would wait for somebody who writes.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_status(path, "cannot open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return invalid_argument(path +
                            (S_ISDIR(info.st_mode) ? ": is a folder" : ": not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      return errno_status(path, "cannot map", error);
    }
    data = static_cast<const std::byte*>(mapping);
  }
  ::close(fd);
  return std::shared_ptr<MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> range) const {
  const uintptr_t first =
      (reinterpret_cast<uintptr_t>(range.data()) + kFilePage - 1) & ~(kFilePage - 1);
  const uintptr_t last =
      reinterpret_cast<uintptr_t>(range.data() + range.size()) & ~(kFilePage - 1);
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void MappedFile::use_huge_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
}

void MappedFile::will_need() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

}  // namespace headrace
