#include "server/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

int new_unix_socket(int flags) { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0); }

Status cannot_listen(const std::string& path, int error) {
  return unavailable(fmt::format("--uds {}: {}", path, std::strerror(error)), "uds");
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return invalid_argument(
        fmt::format("--uds {}: a path of a socket, with a process's number behind it for a moment, "
                    "has at most {} bytes",
                    path, sizeof address.sun_path - 1),
        "uds");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Makes room for a socket of that name.
Status remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return ok_status();
  if (!S_ISSOCK(file.st_mode)) {
    return unavailable(
        fmt::format("--uds {}: there is a file of that name which is no socket", path), "uds");
  }
  // Who listens may be too busy to take another.
  const Descriptor probe(new_unix_socket(SOCK_NONBLOCK));
  if (probe.get() < 0) return cannot_listen(path, errno);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN) {
    return unavailable(fmt::format("--uds {}: another server listens there", path), "uds");
  }
  if (errno != ECONNREFUSED) return cannot_listen(path, errno);
  return ::unlink(path.c_str()) == 0 ? ok_status() : cannot_listen(path, errno);
}

}  // namespace

UnixSocketFile::~UnixSocketFile() {
  struct stat file {};
  if (::lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path_.c_str());
}

Result<BoundUnixSocket> listen_on_unix_socket(const std::string& path, uint32_t mode) {
  // A socket listens under a name of its own before it takes the path, so that nobody finds one
  // there that does not listen yet, and takes it for a stale one.
  const std::string own = fmt::format("{}.{}", path, ::getpid());
  HR_ASSIGN_OR_RETURN(const sockaddr_un address, socket_address(path));
  HR_ASSIGN_OR_RETURN(const sockaddr_un own_address, socket_address(own));
  HR_RETURN_IF_ERROR(remove_stale_socket(path, address));
  Descriptor socket(new_unix_socket(0));
  if (socket.get() < 0) return cannot_listen(path, errno);
  // The rights of the descriptor become the file's, less the umask: nobody else can connect before
  // they are widened.
  if (::fchmod(socket.get(), mode & 0600) != 0) return cannot_listen(path, errno);
  ::unlink(own.c_str());  // of a process of that number that crashed
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own_address), sizeof own_address) !=
      0) {
    return cannot_listen(path, errno);
  }
  struct stat file {};
  if (::lstat(own.c_str(), &file) != 0) return cannot_listen(path, errno);
  const UnixSocketFile own_file(own, file.st_dev, file.st_ino);
  if (::listen(socket.get(), SOMAXCONN) != 0 || ::chmod(own.c_str(), mode) != 0) {
    return cannot_listen(path, errno);
  }
  if (::link(own.c_str(), path.c_str()) != 0) return cannot_listen(path, errno);
  auto made = std::make_unique<UnixSocketFile>(path, file.st_dev, file.st_ino);
  return BoundUnixSocket{socket.release(), std::move(made)};
}

}  // namespace headrace
