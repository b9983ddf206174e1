#include "base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace headrace {
namespace {

constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

}  // namespace

int create_private_file(const std::string& path) {
  ::unlink(path.c_str());  // O_EXCL follows no link, and opens nothing that somebody else made
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly);
}

int open_private_file(const std::string& path, int flags) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, kOwnerOnly);
}

int open_own_file(const std::string& path) {
  // O_NONBLOCK: the opening of a pipe would wait for somebody who writes.
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return -1;
  struct stat info {};
  const bool known = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const bool own = known && (info.st_uid == ::geteuid() || info.st_uid == 0) &&
                   (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (own) return file;
  ::close(file);
  errno = EPERM;
  return -1;
}

}  // namespace headrace
