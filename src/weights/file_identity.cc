#include "weights/file_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include "base/checksum.h"

namespace headrace {

std::string file_identity(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{}:{}:{}:{}.{}:{}.{}", info.st_dev, info.st_ino, info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

uint64_t files_sample(const std::vector<std::string>& paths) {
  const int64_t parts = std::max<int64_t>(16, 256 / std::max<int64_t>(1, std::ssize(paths)));
  constexpr size_t kHead = 64 << 10, kPart = 4096;
  std::vector<std::byte> head(kHead);
  const std::span<std::byte> part = std::span(head).first(kPart);
  uint64_t sum = 0;
  for (const std::string& path : paths) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (file < 0) continue;
    if (::fstat(file, &info) == 0) {
      sum = checksum64(std::as_bytes(std::span(&info.st_size, 1)), sum);
      const ssize_t begun = ::pread(file, head.data(), kHead, 0);
      if (begun > 0) sum = checksum64(std::span(head).first(static_cast<size_t>(begun)), sum);
      const auto last = std::max<int64_t>(0, info.st_size - static_cast<int64_t>(part.size()));
      for (int64_t i = 0; i <= parts; ++i) {
        const ssize_t got = ::pread(file, part.data(), part.size(), last * i / parts);
        if (got > 0) sum = checksum64(part.first(static_cast<size_t>(got)), sum);
      }
    }
    ::close(file);
  }
  return sum;
}

}  // namespace headrace
