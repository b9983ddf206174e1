// The bytes that reach a route, or the verdict, for well-formed, malformed and ambiguous requests;
// the same at every segmentation.
#include "server/http_request_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::http_request_reader_test {
namespace {

struct Outcome {
  HttpRequestReader::Phase phase;
  int status = 0;
  std::string method, path, body;
  size_t taken = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome read_in_steps(std::string_view bytes, size_t step, const HttpLimits& limits = {}) {
  HttpRequestReader reader(limits);
  Outcome outcome;
  for (size_t i = 0; i < bytes.size(); i += step) {
    const std::string_view segment = bytes.substr(i, step);
    size_t taken = reader.feed(segment);
    if (reader.phase() == HttpRequestReader::Phase::kBody) {  // it stops behind the head once
      taken += reader.feed(segment.substr(taken));
    }
    outcome.taken += taken;
    if (taken < segment.size()) break;
  }
  outcome.phase = reader.phase();
  if (reader.phase() == HttpRequestReader::Phase::kFailed) outcome.status = reader.error().status;
  if (reader.phase() == HttpRequestReader::Phase::kComplete) {
    outcome.method = reader.request().method;
    outcome.path = reader.request().path;
    outcome.body = reader.request().body;
  }
  return outcome;
}

Outcome read_all(std::string_view bytes, const HttpLimits& limits = {}) {
  const Outcome whole = read_in_steps(bytes, bytes.size(), limits);
  for (size_t step : {1, 2, 3, 7}) EXPECT_EQ(read_in_steps(bytes, step, limits), whole) << step;
  return whole;
}

void expect_error(std::string_view bytes, int status, const HttpLimits& limits = {}) {
  const Outcome outcome = read_all(bytes, limits);
  EXPECT_EQ(outcome.phase, HttpRequestReader::Phase::kFailed) << bytes.substr(0, 200);
  EXPECT_EQ(outcome.status, status) << bytes.substr(0, 200);
}

TEST(HttpRequestReader, ReadsBodiesByLengthAndInChunks) {
  const Outcome by_length =
      read_all("POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloNEXT");
  EXPECT_EQ(by_length.phase, HttpRequestReader::Phase::kComplete);
  EXPECT_EQ(by_length.path, "/a");
  EXPECT_EQ(by_length.body, "hello");
  const Outcome chunked = read_all(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "Chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\nNEXT");
  EXPECT_EQ(chunked.phase, HttpRequestReader::Phase::kComplete);
  EXPECT_EQ(chunked.body, "hello");
  EXPECT_EQ(read_all("\r\nGET / HTTP/1.0\r\n\r\n").phase, HttpRequestReader::Phase::kComplete);
}

// What is decided by the head alone is decided before a byte of the body is taken.
TEST(HttpRequestReader, StopsBehindAHeadThatABodyFollows) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
  const HttpLimits limits;
  HttpRequestReader reader(limits);
  EXPECT_EQ(reader.feed(head + "helloNEXT"), head.size());
  EXPECT_EQ(reader.phase(), HttpRequestReader::Phase::kBody);
  EXPECT_EQ(reader.received_bytes(), 0u);
  EXPECT_EQ(reader.feed("helloNEXT"), 5u);
  EXPECT_EQ(reader.phase(), HttpRequestReader::Phase::kComplete);
  HttpRequestReader bodyless(limits);
  EXPECT_EQ(bodyless.feed("GET / HTTP/1.0\r\n\r\nNEXT"), 18u);
  EXPECT_EQ(bodyless.phase(), HttpRequestReader::Phase::kComplete);
}

TEST(HttpRequestReader, RefusesWhatTwoParsersMightReadDifferently) {
  const std::string_view corpus[] = {
      // two lengths
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "5\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
      "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      // line ends
      "GET / HTTP/1.1\nHost: x\n\n",
      "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
      "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
      // header names
      "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
      "GET / HTTP/1.1\r\nHo\x01st: x\r\n\r\n",
      "GET / HTTP/1.1\r\nno colon\r\n\r\n",
      // hosts
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
      // targets
      "GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
      "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
  };
  for (std::string_view request : corpus) expect_error(request, 400);
  expect_error(std::string_view("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 37), 400);
  for (std::string_view encoding :
       {"gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;a"}) {
    expect_error("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(encoding) +
                     "\r\n\r\n0\r\n\r\n",
                 501);
  }
  expect_error("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505);
  expect_error("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 505);
  expect_error("GET /\r\n\r\n", 400);  // HTTP/0.9
}

TEST(HttpRequestReader, RefusesMalformedChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::string_view body :
       {"-1\r\n", "+1\r\n", " 1\r\n", "0x1\r\n", "1;ext=1\r\n", "\r\n", "g\r\n", "1\n",
        "1\r\nab\r\n", "1\r\na\n", "000000001\r\n", "0\r\nTrailer: x\r\n\r\n", "0\r\nx"}) {
    expect_error(head + std::string(body), 400);
  }
}

TEST(HttpRequestReader, LimitsHoldWhileReading) {
  HttpLimits limits;
  limits.body_bytes_max = 100;
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  expect_error(head + "Content-Length: 101\r\n\r\n", 413, limits);
  EXPECT_EQ(
      read_all(head + "Content-Length: 100\r\n\r\n" + std::string(100, 'a'), limits).body.size(),
      100u);
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  expect_error(chunked + "65\r\n", 413, limits);
  expect_error(chunked + "64\r\n" + std::string(100, 'a') + "\r\n1\r\n", 413, limits);
  expect_error("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n", 431);
  expect_error("GET / HTTP/1.1\r\nA: " + std::string(9000, 'a'), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n", large = many;
  for (int i = 0; i < 100; ++i) many += "A: b\r\n";
  expect_error(many + "\r\n", 431);
  for (int i = 0; i < 5; ++i) large += "A: " + std::string(8000, 'a') + "\r\n";
  expect_error(large + "\r\n", 431);
  limits.chunk_count_max = 4;
  std::string tiny = chunked;
  for (int i = 0; i < 5; ++i) tiny += "1\r\na\r\n";
  expect_error(tiny, 400, limits);
}

}  // namespace
}  // namespace headrace::http_request_reader_test
