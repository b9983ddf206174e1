// A UNIX socket that listens: its file belongs to whoever made it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace headrace {

// The file of a socket, which is removed at the end if it is still the one that was made.
class UnixSocketFile {
 public:
  UnixSocketFile(std::string path, dev_t device, ino_t inode)
      : path_(std::move(path)), device_(device), inode_(inode) {}
  ~UnixSocketFile();
  UnixSocketFile(const UnixSocketFile&) = delete;

 private:
  const std::string path_;
  const dev_t device_;
  const ino_t inode_;
};

struct BoundUnixSocket {
  int descriptor = -1;  // listens; whoever takes this closes it
  std::unique_ptr<UnixSocketFile> file;
};

// Binds a socket to `path` and listens, with these rights from the first moment. A socket that is
// there and on which nobody listens is removed first. kInvalidArgument: the path is too long or the
// folder is none; kUnavailable: something else has that name, or a server listens there.
Result<BoundUnixSocket> listen_on_unix_socket(const std::string& path, uint32_t mode);

}  // namespace headrace
