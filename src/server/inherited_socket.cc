#include "server/inherited_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

int socket_option(int descriptor, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

Result<int> take_inherited_socket() {
  const char* const count = std::getenv(kInheritedCount);
  const char* const process = std::getenv(kInheritedProcess);
  if (count == nullptr || process == nullptr) return -1;
  const bool mine = std::strtol(process, nullptr, 10) == ::getpid();
  const std::string sockets = count;
  ::unsetenv(kInheritedCount);
  ::unsetenv(kInheritedProcess);
  if (!mine || sockets == "0") return -1;
  if (sockets != "1") {
    return invalid_argument(fmt::format(
        "LISTEN_FDS={}: one socket can be listened on: name one in the socket's unit", sockets));
  }
  const int family = socket_option(kInheritedDescriptor, SO_DOMAIN);
  if (socket_option(kInheritedDescriptor, SO_ACCEPTCONN) != 1 ||
      (family != AF_INET && family != AF_INET6)) {
    return invalid_argument(
        "LISTEN_FDS: descriptor 3 is no TCP socket that listens: hand one over, or unset the "
        "variable");
  }
  ::fcntl(kInheritedDescriptor, F_SETFD, FD_CLOEXEC);
  return kInheritedDescriptor;
}

Result<HeldSocket> HeldSocket::open() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  HeldSocket held(descriptor, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (descriptor < 0 || ::bind(descriptor, generic, size) != 0 ||
      ::listen(descriptor, SOMAXCONN) != 0 || ::getsockname(descriptor, generic, &size) != 0) {
    return unavailable(fmt::format("no port of 127.0.0.1 is free: {}", std::strerror(errno)));
  }
  held.port_ = ntohs(address.sin_port);
  return held;
}

HeldSocket::HeldSocket(HeldSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}

HeldSocket& HeldSocket::operator=(HeldSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(port_, other.port_);
  return *this;
}

HeldSocket::~HeldSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void HeldSocket::refuse_waiting() const {
  while (true) {
    const int connection = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    ::close(connection);
  }
}

}  // namespace headrace
