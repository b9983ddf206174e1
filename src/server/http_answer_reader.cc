#include "server/http_answer_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace headrace {
namespace {

constexpr size_t kLineBytesMax = 64 << 10;
constexpr size_t kBodyBytesMax = 256 << 20;
constexpr std::string_view kData = "data:";

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

Status no_answer(std::string_view what) {
  return corrupt(std::string("the server's answer is no HTTP/1.1: ") + std::string(what));
}

}  // namespace

Status HttpAnswerReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    switch (phase_) {
      case Phase::kHead:
        if (take_line(bytes)) HR_RETURN_IF_ERROR(take_head_line());
        break;
      case Phase::kChunkSize:
        if (take_line(bytes)) HR_RETURN_IF_ERROR(take_chunk_size());
        break;
      case Phase::kToEnd:
        add_to_body(bytes);
        bytes = {};
        break;
      case Phase::kBody:
      case Phase::kChunk:
        take_body(bytes);
        break;
      case Phase::kChunkEnd:
        if (take_line(bytes)) phase_ = Phase::kChunkSize;
        break;
      case Phase::kLastChunkEnd:
        if (take_line(bytes)) phase_ = Phase::kComplete;
        break;
      case Phase::kComplete:
        return no_answer("bytes behind its end");
    }
    if (line_.size() > kLineBytesMax) return no_answer("a line without end");
    if (body_.size() > kBodyBytesMax) return no_answer("a body without end");
  }
  return ok_status();
}

Status HttpAnswerReader::end() {
  if (phase_ == Phase::kToEnd) phase_ = Phase::kComplete;
  return complete() ? ok_status() : no_answer("it ended too soon");
}

bool HttpAnswerReader::take_line(std::string_view& bytes) {
  if (line_complete_) line_.clear();
  const size_t end = bytes.find('\n');
  line_complete_ = end != bytes.npos;
  line_ += bytes.substr(0, end);
  bytes.remove_prefix(line_complete_ ? end + 1 : bytes.size());
  if (line_complete_ && line_.ends_with('\r')) line_.pop_back();
  return line_complete_;
}

Status HttpAnswerReader::take_head_line() {
  if (status_ == 0) {
    if (!line_.starts_with("HTTP/1.") || line_.size() < 12) return no_answer("no status line");
    std::from_chars(line_.data() + 9, line_.data() + 12, status_);
    closes_ = line_.starts_with("HTTP/1.0");
    return status_ >= 100 ? ok_status() : no_answer("no status");
  }
  if (line_.empty()) {
    begin_body();
    return ok_status();
  }
  const size_t colon = line_.find(':');
  if (colon == line_.npos) return no_answer("a header without a colon");
  const std::string name = lower(std::string_view(line_).substr(0, colon));
  const std::string value = lower(std::string_view(line_).substr(colon + 1));
  if (name == "content-length") {
    const size_t first = value.find_first_not_of(' ');
    if (first == value.npos) return no_answer("no content-length");
    std::from_chars(value.data() + first, value.data() + value.size(), left_);
    has_length_ = true;
  }
  if (name == "transfer-encoding") chunked_ = value.find("chunked") != value.npos;
  if (name == "content-type") stream_ = value.find("text/event-stream") != value.npos;
  if (name == "retry-after" && retry_after_ < 0) retry_after_ = std::atof(value.c_str());
  if (name == "retry-after-ms") retry_after_ = std::atof(value.c_str()) * 1e-3;
  if (name == "connection" && value.find("close") != value.npos) closes_ = true;
  return ok_status();
}

void HttpAnswerReader::begin_body() {
  if (status_ == 100) {  // the real head follows
    status_ = 0;
    return;
  }
  // RFC 9112, 6.3: without a length and chunks, the connection's end is the body's.
  const bool to_end = !has_length_ && !chunked_ && status_ != 204 && status_ != 304;
  closes_ |= to_end;
  phase_ = chunked_    ? Phase::kChunkSize
           : left_ > 0 ? Phase::kBody
           : to_end    ? Phase::kToEnd
                       : Phase::kComplete;
}

Status HttpAnswerReader::take_chunk_size() {
  const auto [end, error] = std::from_chars(line_.data(), line_.data() + line_.size(), left_, 16);
  if (error != std::errc() || end == line_.data()) return no_answer("a chunk without a size");
  phase_ = left_ > 0 ? Phase::kChunk : Phase::kLastChunkEnd;
  return ok_status();
}

void HttpAnswerReader::take_body(std::string_view& bytes) {
  const auto count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  add_to_body(bytes.substr(0, count));
  bytes.remove_prefix(count);
  left_ -= count;
  if (left_ == 0) phase_ = phase_ == Phase::kChunk ? Phase::kChunkEnd : Phase::kComplete;
}

void HttpAnswerReader::add_to_body(std::string_view bytes) {
  body_ += bytes;
  if (!stream_) return;
  size_t first = 0;
  for (size_t end = body_.find('\n'); end != body_.npos; end = body_.find('\n', first)) {
    std::string_view line = std::string_view(body_).substr(first, end - first);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kData)) {
      line.remove_prefix(kData.size());
      on_event_(line.starts_with(' ') ? line.substr(1) : line);
    }
    first = end + 1;
  }
  body_.erase(0, first);
}

}  // namespace headrace
