#include "server/client_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

namespace headrace {

Json TestResponse::json() const {
  Result<Json> parsed = parse_json(body);
  CHECK_MSG(parsed.ok(), "the body is no JSON");
  return std::move(*parsed);
}

std::vector<std::string> TestResponse::events() const {
  std::vector<std::string> result;
  size_t begin = 0;
  while (begin < body.size()) {
    const size_t end = body.find("\n\n", begin);
    CHECK_MSG(end != body.npos && body.compare(begin, 6, "data: ") == 0, "not an event stream");
    result.push_back(body.substr(begin + 6, end - begin - 6));
    begin = end + 2;
  }
  return result;
}

std::string TestResponse::error_param() const {
  const Json parsed = json();
  const Json* error = parsed.find("error");
  const Json* param = error ? error->find("param") : nullptr;
  return param && param->is_string() ? param->as_string() : "";
}

TestClient::TestClient(uint16_t port, int receive_buffer_bytes) {
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

TestClient::~TestClient() { close(); }

void TestClient::end_sending() { ::shutdown(fd_, SHUT_WR); }

void TestClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool TestClient::fill(double seconds) {
  pollfd poller{fd_, POLLIN, 0};
  if (poll(&poller, 1, static_cast<int>(seconds * 1e3)) <= 0) return false;
  char chunk[65536];
  const ssize_t count = recv(fd_, chunk, sizeof chunk, 0);
  if (count <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(count));
  return true;
}

bool TestClient::fill_until(size_t size, double seconds) {
  while (buffer_.size() < size) {
    if (!fill(seconds)) return false;
  }
  return true;
}

std::string TestClient::receive(size_t count, double seconds) {
  fill_until(count, seconds);
  std::string taken = buffer_.substr(0, count);
  buffer_.erase(0, taken.size());
  return taken;
}

bool TestClient::wait_for_close(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd poller{fd_, POLLIN, 0};
    if (poll(&poller, 1, 50) <= 0) continue;
    char chunk[65536];
    if (recv(fd_, chunk, sizeof chunk, 0) <= 0) return true;
  }
  return false;
}

std::optional<TestResponse> TestClient::read_response(double seconds) {
  size_t end = std::string::npos;
  while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
    if (!fill(seconds)) return std::nullopt;
  }
  TestResponse response;
  response.status = std::atoi(buffer_.c_str() + 9);
  size_t begin = buffer_.find("\r\n") + 2;
  while (begin < end + 2) {
    const size_t line_end = buffer_.find("\r\n", begin);
    const std::string line = buffer_.substr(begin, line_end - begin);
    std::string name = line.substr(0, line.find(':'));
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    response.headers[name] = line.substr(line.find(':') + 2);
    begin = line_end + 2;
  }
  buffer_.erase(0, end + 4);
  if (response.status == 100) return read_response(seconds);
  return read_body(response, seconds) ? std::optional(response) : std::nullopt;
}

bool TestClient::read_body(TestResponse& response, double seconds) {
  if (response.headers.count("content-length")) {
    const size_t size = std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
    if (!fill_until(size, seconds)) return false;
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return true;
  }
  if (!response.headers.count("transfer-encoding")) {  // until the connection closes
    while (fill(seconds)) {
    }
    response.body = std::exchange(buffer_, "");
    return true;
  }
  while (true) {
    size_t line_end = std::string::npos;
    while ((line_end = buffer_.find("\r\n")) == buffer_.npos) {
      if (!fill(seconds)) return false;
    }
    const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
    if (!fill_until(line_end + 2 + size + 2, seconds)) return false;
    response.body += buffer_.substr(line_end + 2, size);
    buffer_.erase(0, line_end + 2 + size + 2);
    if (size == 0) return true;
  }
}

std::optional<TestResponse> TestClient::get(std::string_view path, std::string_view headers) {
  if (!send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers)))
    return std::nullopt;
  return read_response();
}

std::optional<TestResponse> TestClient::post(std::string_view path, const Json& body,
                                             std::string_view headers) {
  return post_text(path, write_json(body), headers);
}

std::optional<TestResponse> TestClient::post_text(std::string_view path, std::string_view body,
                                                  std::string_view headers) {
  if (!send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        "Content-Length: {}\r\n{}\r\n{}",
                        path, body.size(), headers, body))) {
    return std::nullopt;
  }
  return read_response();
}

}  // namespace headrace
