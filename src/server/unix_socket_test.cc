#include "server/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::unix_socket_test {
namespace {

struct UnixSocketTest : testing::Test {
  UnixSocketTest() {
    char name[] = "/tmp/headrace_uds_XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    folder = name;
    path = folder + "/api.sock";
  }
  ~UnixSocketTest() override { std::filesystem::remove_all(folder); }

  ServerOptions options() const {
    ServerOptions options;
    options.unix_socket = path;
    return options;
  }
  // The answer to a GET; "" where nobody listens.
  std::string get(std::string_view target, std::string_view host = "x") const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    std::string answer;
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const std::string request =
          fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target, host);
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
      char chunk[4096];
      for (ssize_t n = 0; (n = recv(fd, chunk, sizeof chunk, 0)) > 0;)
        answer.append(chunk, static_cast<size_t>(n));
    }
    ::close(fd);
    return answer;
  }
  mode_t rights() const {
    struct stat file {};
    CHECK(::stat(path.c_str(), &file) == 0);
    return file.st_mode & 0777;
  }

  std::string folder, path;
};

TEST_F(UnixSocketTest, ServesAndIsGoneAtTheEnd) {
  {
    ServerOptions few = options();
    few.http.connections_per_address_max = 1;  // those behind a socket have no address
    ServerFixture f({}, "x", few);
    EXPECT_EQ(rights(), 0600u);
    EXPECT_TRUE(get("/health").starts_with("HTTP/1.1 200 OK\r\n"));
    EXPECT_TRUE(get("/v1/models").starts_with("HTTP/1.1 200 OK\r\n"));
    EXPECT_EQ(f.server->port(), 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// No name of the network leads there, so that a rebound one cannot either.
TEST_F(UnixSocketTest, ClientsMayCallItAnything) {
  ServerOptions alone = options();
  alone.handle_signals = false;
  const auto server = Server::create(alone);
  ASSERT_TRUE(server.ok() && (*server)->start().ok());
  EXPECT_TRUE(get("/health", "llm.example.com").starts_with("HTTP/1.1 503"));  // it has no model
}

TEST_F(UnixSocketTest, RightsAreThoseThatWereAskedFor) {
  const mode_t mask = umask(077);
  {
    ServerOptions group = options();
    group.unix_socket_mode = 0660;
    ServerFixture f({}, "x", group);
    EXPECT_EQ(rights(), 0660u);
  }
  umask(mask);
}

TEST_F(UnixSocketTest, OnlyWhatNobodyListensOnIsReplaced) {
  {
    const auto crashed = listen_on_unix_socket(path, 0600);
    ASSERT_TRUE(crashed.ok());
    const auto second = listen_on_unix_socket(path, 0600);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().message(), "--uds " + path + ": another server listens there");
    ::close(crashed->descriptor);
    const auto third = listen_on_unix_socket(path, 0600);
    ASSERT_TRUE(third.ok()) << third.status().message();
    ::close(third->descriptor);
  }
  std::ofstream(path) << "precious";
  const auto over_file = listen_on_unix_socket(path, 0600);
  ASSERT_FALSE(over_file.ok());
  EXPECT_NE(over_file.status().message().find("which is no socket"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path), 8u);
}

// A server that takes nobody any more still has its place.
TEST_F(UnixSocketTest, AFullQueueIsAServer) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const int server = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(server, where, sizeof address), 0);
  ASSERT_EQ(::listen(server, 0), 0);
  std::vector<int> clients;
  do {
    clients.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (::connect(clients.back(), where, sizeof address) == 0 && clients.size() < 100);
  EXPECT_EQ(errno, EAGAIN);
  const auto second = listen_on_unix_socket(path, 0600);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(), "--uds " + path + ": another server listens there");
  for (const int client : clients) ::close(client);
  ::close(server);
}

TEST_F(UnixSocketTest, ASocketThatSomebodyElseHasMadeMeanwhileStays) {
  auto first = listen_on_unix_socket(path, 0600);
  ASSERT_TRUE(first.ok());
  ::close(first->descriptor);
  std::ofstream(folder + "/other") << "another's";
  std::filesystem::rename(folder + "/other", path);
  first->file.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(UnixSocketTest, PathsThatAreNoneAreRefused) {
  const auto message = [](const std::string& where) {
    const auto bound = listen_on_unix_socket(where, 0600);
    return bound.ok() ? "" : bound.status().message();
  };
  EXPECT_NE(message(folder + "/" + std::string(200, 'a')).find("at most 107 bytes"),
            std::string::npos);
  EXPECT_NE(message(folder + "/none/api.sock").find("No such file or directory"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::unix_socket_test
