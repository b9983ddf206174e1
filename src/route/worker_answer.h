// Reads one answer of a worker as its bytes come: the head, then pieces of the body without their
// framing. No sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"
#include "server/http_request_reader.h"

namespace headrace {

class WorkerAnswer {
 public:
  WorkerAnswer();

  // kCorrupt where the bytes are no answer of HTTP/1.1, or go on behind its end.
  Status feed(std::string_view bytes);
  // The worker has closed the connection. kCorrupt where more was to come.
  Status end();

  bool has_head() const { return phase_ != Phase::kHead; }
  bool complete() const { return phase_ == Phase::kComplete; }
  // Another request may follow on the connection. REQUIRES: complete()
  bool keeps_alive() const { return keeps_alive_; }
  int status() const { return status_; }
  const std::string& content_type() const { return content_type_; }
  // All others but those of the connection and of the body's length; names as they came.
  const std::vector<HttpHeader>& headers() const { return headers_; }
  // -1: it does not say.
  int64_t content_length() const { return content_length_; }
  // What has come of the body since it was cleared.
  std::string& body() { return body_; }

 private:
  enum class Phase { kHead, kLength, kChunks, kToEnd, kComplete };
  Status keep_head(std::string begun);
  Status read_head(std::string_view lines);
  Status feed_body(std::string_view bytes);
  Status read_line(std::string_view line, bool& chunked);

  Phase phase_ = Phase::kHead;
  std::string head_;  // what has come of it
  int informed_ = 0;  // answers 1xx so far
  int status_ = 0;
  bool keeps_alive_ = true;
  std::string content_type_;
  std::vector<HttpHeader> headers_;
  int64_t content_length_ = -1;
  uint64_t left_ = 0;
  ChunkedDecoder chunks_;
  std::string body_;
};

// Headers that are one connection's, not the message's (RFC 9110 7.6.1). `name`: lower case.
bool is_hop_header(std::string_view name);

}  // namespace headrace
