// Bytes of a connection -> one HttpRequest, under limits that hold while reading. No sockets: the
// same code runs under the fuzzer. The result never depends on segmentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_head_parser.h"
#include "server/http_message.h"
#include "server/server_limits.h"

namespace headrace {

// Decodes a chunked body. Stricter than RFC 9112: no chunk extensions and no trailers, which no
// client of these routes sends and proxies disagree about.
class ChunkedDecoder {
 public:
  explicit ChunkedDecoder(const HttpLimits& limits) : limits_(limits) {}

  // Appends decoded bytes to `body`; returns how many input bytes were taken.
  size_t feed(std::string_view bytes, std::string& body);
  bool complete() const { return state_ == State::kComplete; }
  const std::optional<HttpError>& error() const { return error_; }

 private:
  enum class State { kSize, kSizeLf, kData, kDataCr, kDataLf, kLastCr, kLastLf, kComplete };
  void take_framing(char byte, size_t body_bytes);
  void take_size_digit(char byte);
  void begin_chunk(size_t body_bytes);
  void expect(char byte, char wanted, State next);
  void fail(int status, std::string_view message) { error_ = HttpError{status, message}; }

  const HttpLimits& limits_;
  State state_ = State::kSize;
  uint64_t chunk_left_ = 0;
  int digits_ = 0;
  int chunks_ = 0;
  std::optional<HttpError> error_;
};

class HttpRequestReader {
 public:
  enum class Phase { kIdle /* no byte yet */, kHead, kBody, kComplete, kFailed };

  explicit HttpRequestReader(const HttpLimits& limits)
      : limits_(limits), head_(limits), chunks_(limits) {}

  // Takes bytes up to the end of this request; returns how many. The rest belongs to the next.
  // Where a body follows it stops once behind the head, so that whether to read it is decided
  // there, however the bytes came.
  size_t feed(std::string_view bytes);

  Phase phase() const { return phase_; }
  const HttpError& error() const { return *error_; }  // REQUIRES: kFailed
  // REQUIRES: kComplete; head from kBody on; of kFailed what was read of it
  HttpRequest& request() { return request_; }
  // The client waits for "100 Continue" before it sends the body. REQUIRES: kBody
  bool expects_continue() const { return framing_.expects_continue; }
  // Of the body: announced, or for a chunked one read so far. REQUIRES: kBody or kComplete
  uint64_t body_bytes() const { return framing_.chunked ? request_.body.size() : framing_.length; }
  size_t received_bytes() const { return request_.body.size(); }  // of the body

 private:
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void fail(HttpError error);

  const HttpLimits& limits_;
  Phase phase_ = Phase::kIdle;
  HttpHeadCollector head_;
  BodyFraming framing_;
  ChunkedDecoder chunks_;
  HttpRequest request_;
  std::optional<HttpError> error_;
};

}  // namespace headrace
