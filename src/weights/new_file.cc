#include "weights/new_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace headrace {
namespace {

// Whether what is open has `bytes` bytes that begin with `head`.
bool begins_alike(int file, std::string_view head, size_t bytes) {
  struct stat info;
  if (::fstat(file, &info) != 0 || info.st_size != static_cast<off_t>(bytes)) return false;
  std::string found(head.size(), '\0');
  return ::pread(file, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
         found == head;
}

}  // namespace

Result<std::unique_ptr<NewFile>> NewFile::create(const std::string& path, std::string_view head,
                                                 size_t bytes, OldFile old) {
  CHECK(head.size() <= bytes && bytes > 0);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return invalid_argument(fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
  }
  const bool continued = old == OldFile::kContinue && begins_alike(file, head, bytes);
  int error = continued || ::ftruncate(file, 0) == 0 ? 0 : errno;
  if (error == 0) error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* mapping = MAP_FAILED;
  if (error == 0) {
    mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (mapping == MAP_FAILED) {
    ::unlink(path.c_str());
    return exhausted(
        fmt::format("{}: no room for {} MiB: {}", path, bytes >> 20, std::strerror(error)));
  }
  const std::span<std::byte> all(static_cast<std::byte*>(mapping), bytes);
  if (!continued) std::ranges::copy(std::as_bytes(std::span(head)), all.begin());
  return std::unique_ptr<NewFile>(new NewFile(path, all, continued));
}

Status NewFile::flush() const {
  if (::msync(mapping_.data(), mapping_.size(), MS_SYNC) == 0) return ok_status();
  return internal_error(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
}

NewFile::~NewFile() { ::munmap(mapping_.data(), mapping_.size()); }

}  // namespace headrace
