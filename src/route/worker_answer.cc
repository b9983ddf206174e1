#include "route/worker_answer.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <utility>

#include "server/header_text.h"

namespace headrace {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr int kInformationalMax = 16;  // answers 1xx before the one that counts

// Of what a worker sends: streams have no end that is known.
const HttpLimits& answer_limits() {
  static const HttpLimits limits = {
      .body_bytes_max = SIZE_MAX / 2, .chunk_size_digits_max = 15, .chunk_count_max = INT_MAX};
  return limits;
}

Status no_answer(std::string_view why) {
  return corrupt("it answers no HTTP/1.1: " + std::string(why));
}

// What a client's reader could take for something else must not pass (RFC 9110 5.1, 5.5, 5.6.2).
bool is_token(std::string_view name) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kOther.find(c) != kOther.npos;
  });
}
bool is_field_value(std::string_view value) {
  return value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos;
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
  std::string behind_head;
  if (phase_ == Phase::kHead) {
    behind_head = std::exchange(head_, {}).append(bytes);
    while (phase_ == Phase::kHead) {
      const size_t end = behind_head.find("\r\n\r\n");
      if (end == behind_head.npos) return keep_head(std::move(behind_head));
      HR_RETURN_IF_ERROR(read_head(std::string_view(behind_head).substr(0, end + 2)));
      behind_head.erase(0, end + 4);
    }
    if (behind_head.empty()) return ok_status();
    bytes = behind_head;
  }
  return feed_body(bytes);
}

// A head that is not whole yet.
Status WorkerAnswer::keep_head(std::string begun) {
  constexpr std::string_view kBegin = "HTTP/";
  const size_t shown = std::min(begun.size(), kBegin.size());
  if (std::string_view(begun).substr(0, shown) != kBegin.substr(0, shown)) {
    return no_answer("no status line");
  }
  if (begun.size() > kHeadBytesMax) return no_answer("a head without end");
  head_ = std::move(begun);
  return ok_status();
}

Status WorkerAnswer::feed_body(std::string_view bytes) {
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

Status WorkerAnswer::read_head(std::string_view lines) {
  bool chunked = false;
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
  if (status_ < 200) {  // 100 Continue: the real head follows
    status_ = 0;
    headers_.clear();
    content_type_.clear();
    content_length_ = -1;
    return ++informed_ > kInformationalMax ? no_answer("no end of answers 1xx") : ok_status();
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
  if (!is_token(name)) return no_answer("a header's name that is none");
  if (!is_field_value(value)) return no_answer("a line end or a zero in a header");
  if (name == "content-length") {
    const int64_t before = std::exchange(content_length_, -1);
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, content_length_);
    const bool whole = read.ec == std::errc() && read.ptr == end && content_length_ >= 0;
    if (!whole || (before >= 0 && before != content_length_)) return no_answer("no content-length");
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
