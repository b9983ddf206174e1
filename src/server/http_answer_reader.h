// Reads one answer of HTTP/1.1 as its bytes come: head, then a body by length, in chunks, or to the
// connection's end. Of an event stream it hands on each event's data; any other body it keeps. No
// trailers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace headrace {

class HttpAnswerReader {
 public:
  // What follows "data:" in an event of one line; valid during the call.
  using OnEvent = std::function<void(std::string_view data)>;

  explicit HttpAnswerReader(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // Takes all of `bytes`. kCorrupt where they are no such answer, or go on behind its end.
  Status feed(std::string_view bytes);
  // The peer has closed the connection. kCorrupt where more was to come.
  Status end();

  bool complete() const { return phase_ == Phase::kComplete; }
  int status() const { return status_; }  // 0 until the head has come
  bool is_stream() const { return stream_; }
  // Of Retry-After, or finer of retry-after-ms; -1: it has none.
  double retry_after_seconds() const { return retry_after_; }
  bool closes() const { return closes_; }            // the peer ends the connection after this
  const std::string& body() const { return body_; }  // of what is no event stream

 private:
  enum class Phase {
    kHead,
    kBody,
    kToEnd,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kLastChunkEnd,
    kComplete
  };

  bool take_line(std::string_view& bytes);  // into line_, without its end; false: more to come
  Status take_head_line();
  Status take_chunk_size();
  void take_body(std::string_view& bytes);
  void add_to_body(std::string_view bytes);
  void begin_body();

  const OnEvent on_event_;
  Phase phase_ = Phase::kHead;
  std::string line_;
  bool line_complete_ = false;
  int status_ = 0;
  bool chunked_ = false, stream_ = false, closes_ = false, has_length_ = false;
  double retry_after_ = -1;
  uint64_t left_ = 0;  // of the body, or of the chunk
  std::string body_;   // of an event stream: its last, unfinished line
};

}  // namespace headrace
