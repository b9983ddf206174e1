#include "server/inherited_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace headrace::inherited_socket_test {
namespace {

// What a process gets that was handed `descriptor` so; its exit code is what `judge` says.
int in_child(int descriptor, const char* count, pid_t process,
             const std::function<int(const Result<int>&)>& judge) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (descriptor >= 0) ::dup2(descriptor, kInheritedDescriptor);
    ::setenv(kInheritedCount, count, 1);
    ::setenv(kInheritedProcess, std::to_string(process == 0 ? ::getpid() : process).c_str(), 1);
    const Result<int> taken = take_inherited_socket();
    const bool told = std::getenv(kInheritedCount) || std::getenv(kInheritedProcess);
    _exit(told ? 99 : judge(taken));
  }
  int how = 0;
  ::waitpid(child, &how, 0);
  return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

int connect_to(uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return descriptor;
}

TEST(InheritedSocket, IsOfTheProcessThatItIsFor) {
  auto held = HeldSocket::open();
  ASSERT_TRUE(held.ok());
  const auto judge = [](const Result<int>& taken) {
    if (!taken.ok()) return 1;
    if (*taken < 0) return 2;
    return ::fcntl(*taken, F_GETFD) == FD_CLOEXEC ? 3 : 4;
  };
  EXPECT_EQ(in_child(held->descriptor(), "1", 0, judge), 3);
  EXPECT_EQ(in_child(held->descriptor(), "1", ::getppid(), judge), 2);  // another's
  EXPECT_EQ(in_child(held->descriptor(), "0", 0, judge), 2);
  EXPECT_EQ(in_child(held->descriptor(), "2", 0, judge), 1);
  EXPECT_EQ(*take_inherited_socket(), -1);  // nobody handed one to this process
}

TEST(InheritedSocket, WhatDoesNotListenIsRefused) {
  const auto refused = [](const Result<int>& taken) {
    return !taken.ok() && taken.status().message().find("descriptor 3") != std::string::npos;
  };
  const int plain = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(in_child(plain, "1", 0, refused), 1);
  ::close(plain);
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(in_child(file, "1", 0, refused), 1);
  ::close(file);
}

TEST(HeldSocket, WhoWaitsIsLetGo) {
  auto held = HeldSocket::open();
  ASSERT_TRUE(held.ok());
  const int one = connect_to(held->port()), other = connect_to(held->port());
  held->refuse_waiting();
  char byte;
  EXPECT_EQ(::read(one, &byte, 1), 0);  // the end, and not a wait for ever
  EXPECT_EQ(::read(other, &byte, 1), 0);
  ::close(one);
  ::close(other);
  held->refuse_waiting();  // of nobody
}

TEST(HeldSocket, NobodyElseGetsItsPort) {
  auto held = HeldSocket::open();
  ASSERT_TRUE(held.ok());
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  for (const int option : {SO_REUSEADDR, SO_REUSEPORT}) {
    ::setsockopt(other, SOL_SOCKET, option, &yes, sizeof yes);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(held->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(other);
}

}  // namespace
}  // namespace headrace::inherited_socket_test
