// A blocking HTTP client over a raw socket, for tests: it can also misbehave byte by byte.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace headrace {

struct TestResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // de-chunked

  Json json() const;                        // REQUIRES: the body is JSON
  std::vector<std::string> events() const;  // data of each SSE event
  std::string error_param() const;          // "" when there is none
};

class TestClient {
 public:
  // receive_buffer_bytes: 0 = the system's default.
  explicit TestClient(uint16_t port, int receive_buffer_bytes = 0);
  ~TestClient();
  TestClient(const TestClient&) = delete;

  bool send(std::string_view bytes);  // false: the peer closed
  // What comes until `count` bytes, the peer's end or the time-out.
  std::string receive(size_t count, double seconds = 5);
  // Reads one response. Nothing when the peer closes or the time-out passes before its end.
  std::optional<TestResponse> read_response(double seconds = 10);
  // Whether the peer closes within the time.
  bool wait_for_close(double seconds);
  void close();
  void end_sending();  // it still reads

  std::optional<TestResponse> get(std::string_view path, std::string_view headers = "");
  std::optional<TestResponse> post(std::string_view path, const Json& body,
                                   std::string_view headers = "");
  std::optional<TestResponse> post_text(std::string_view path, std::string_view body,
                                        std::string_view headers = "");

 private:
  bool fill(double seconds);  // one recv into buffer_
  bool fill_until(size_t size, double deadline_seconds);
  bool read_body(TestResponse& response, double seconds);
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace headrace
