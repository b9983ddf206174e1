#include "route/worker_answer.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include "server/header_text.h"

namespace headrace {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;

// Of what a worker sends: streams have no end that is known.
const HttpLimits& answer_limits() {
  static const HttpLimits limits = {
      .body_bytes_max = SIZE_MAX / 2, .chunk_size_digits_max = 15, .chunk_count_max = INT_MAX};
  return limits;
}

Status no_answer(std::string_view why) {
  return corrupt("it answers no HTTP/1.1: " + std::string(why));
}

}  // namespace

bool is_hop_header(std::string_view name) {
  for (const std::string_view each :
       {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade", "content-length"}) {
    if (name == each) return true;
  }
  return false;
}

WorkerAnswer::WorkerAnswer() : chunks_(answer_limits()) {}

Status WorkerAnswer::feed(std::string_view bytes) {
  if (phase_ == Phase::kHead) {
    head_ += bytes;
    const size_t end = head_.find("\r\n\r\n");
    if (end == head_.npos) {
      const size_t shown = std::min<size_t>(head_.size(), 5);
      if (std::string_view(head_).substr(0, shown) != std::string_view("HTTP/").substr(0, shown)) {
        return no_answer("no status line");
      }
      return head_.size() > kHeadBytesMax ? no_answer("a head without end") : ok_status();
    }
    const std::string rest = head_.substr(end + 4);
    head_.resize(end + 2);
    HR_RETURN_IF_ERROR(read_head());
    return rest.empty() ? ok_status() : feed(rest);
  }
  switch (phase_) {
    case Phase::kChunks: {
      const size_t taken = chunks_.feed(bytes, body_);
      if (chunks_.error()) return no_answer(chunks_.error()->message);
      if (!chunks_.complete()) return ok_status();
      phase_ = Phase::kComplete;
      return taken == bytes.size() ? ok_status() : no_answer("bytes behind its end");
    }
    case Phase::kLength: {
      if (bytes.size() > left_) return no_answer("bytes behind its end");
      body_ += bytes;
      left_ -= bytes.size();
      if (left_ == 0) phase_ = Phase::kComplete;
      return ok_status();
    }
    case Phase::kToEnd:
      body_ += bytes;
      return ok_status();
    default:
      return no_answer("bytes behind its end");
  }
}

Status WorkerAnswer::end() {
  if (phase_ == Phase::kToEnd) phase_ = Phase::kComplete;
  return complete() ? ok_status() : unavailable("the connection broke");
}

Status WorkerAnswer::read_head() {
  bool chunked = false;
  std::string_view lines = head_;
  if (!lines.starts_with("HTTP/1.") || lines.size() < 14) return no_answer("no status line");
  keeps_alive_ = lines[7] == '1';
  std::from_chars(lines.data() + 9, lines.data() + 12, status_);
  if (status_ < 100 || status_ > 599) return no_answer("no status");
  lines.remove_prefix(lines.find("\r\n") + 2);
  while (!lines.empty()) {
    const size_t end = lines.find("\r\n");
    HR_RETURN_IF_ERROR(read_line(lines.substr(0, end), chunked));
    lines.remove_prefix(end + 2);
  }
  head_.clear();
  if (status_ < 200) {  // 100 Continue: the real head follows
    status_ = 0;
    headers_.clear();
    return ok_status();
  }
  const bool bodiless = status_ == 204 || status_ == 304;
  left_ = static_cast<uint64_t>(std::max<int64_t>(0, content_length_));
  if (!chunked && content_length_ < 0 && !bodiless) keeps_alive_ = false;
  phase_ = bodiless              ? Phase::kComplete
           : chunked             ? Phase::kChunks
           : content_length_ < 0 ? Phase::kToEnd
           : left_ > 0           ? Phase::kLength
                                 : Phase::kComplete;
  return ok_status();
}

Status WorkerAnswer::read_line(std::string_view line, bool& chunked) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return no_answer("a header without a colon");
  const std::string name = to_lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "content-length") {
    const auto read = std::from_chars(value.data(), value.data() + value.size(), content_length_);
    if (read.ec != std::errc() || content_length_ < 0) return no_answer("no content-length");
  } else if (name == "transfer-encoding") {
    chunked = to_lower(value) == "chunked";
    if (!chunked) return no_answer("a transfer-encoding that is not chunked");
  } else if (name == "connection") {
    if (to_lower(value).find("close") != std::string::npos) keeps_alive_ = false;
  } else if (name == "content-type") {
    content_type_ = value;
  } else if (!is_hop_header(name)) {
    headers_.push_back({std::string(line.substr(0, colon)), std::string(value)});
  }
  return ok_status();
}

}  // namespace headrace
