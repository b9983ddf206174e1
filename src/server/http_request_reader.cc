#include "server/http_request_reader.h"

#include <algorithm>

namespace headrace {

size_t ChunkedDecoder::feed(std::string_view bytes, std::string& body) {
  size_t taken = 0;
  while (taken < bytes.size() && !complete() && !error_) {
    if (state_ != State::kData) {
      take_framing(bytes[taken++], body.size());
      continue;
    }
    const size_t count = std::min<uint64_t>(chunk_left_, bytes.size() - taken);
    body.append(bytes.substr(taken, count));
    taken += count;
    chunk_left_ -= count;
    if (chunk_left_ == 0) state_ = State::kDataCr;
  }
  return taken;
}

void ChunkedDecoder::take_framing(char byte, size_t body_bytes) {
  switch (state_) {
    case State::kSize:
      if (byte != '\r') return take_size_digit(byte);
      if (digits_ == 0) return fail(400, "a chunk size is missing");
      state_ = State::kSizeLf;
      return;
    case State::kSizeLf:
      expect(byte, '\n', State::kData);
      if (!error_) begin_chunk(body_bytes);
      return;
    case State::kDataCr:
      return expect(byte, '\r', State::kDataLf);
    case State::kDataLf:
      return expect(byte, '\n', State::kSize);
    case State::kLastCr:
      return expect(byte, '\r', State::kLastLf);
    case State::kLastLf:
      return expect(byte, '\n', State::kComplete);
    case State::kData:
    case State::kComplete:
      return;
  }
}

void ChunkedDecoder::take_size_digit(char byte) {
  int digit = -1;
  if (byte >= '0' && byte <= '9') digit = byte - '0';
  if (byte >= 'a' && byte <= 'f') digit = byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') digit = byte - 'A' + 10;
  if (digit < 0) return fail(400, "a chunk size must be hexadecimal digits");
  if (++digits_ > limits_.chunk_size_digits_max) return fail(400, "a chunk size is too long");
  chunk_left_ = chunk_left_ * 16 + static_cast<uint64_t>(digit);
}

void ChunkedDecoder::begin_chunk(size_t body_bytes) {
  digits_ = 0;
  if (chunk_left_ == 0) {
    state_ = State::kLastCr;
  } else if (++chunks_ > limits_.chunk_count_max) {
    fail(400, "there are too many chunks");
  } else if (body_bytes + chunk_left_ > limits_.body_bytes_max) {
    fail(413, "the body is too large");
  }
}

void ChunkedDecoder::expect(char byte, char wanted, State next) {
  if (byte != wanted) return fail(400, "the chunked body is malformed");
  state_ = next;
}

size_t HttpRequestReader::feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && phase_ != Phase::kComplete && phase_ != Phase::kFailed) {
    const std::string_view rest = bytes.substr(taken);
    const bool in_head = phase_ != Phase::kBody;
    taken += in_head ? feed_head(rest) : feed_body(rest);
    if (in_head && phase_ == Phase::kBody) break;
  }
  return taken;
}

size_t HttpRequestReader::feed_head(std::string_view bytes) {
  const size_t taken = head_.feed(bytes);
  phase_ = head_.empty() ? Phase::kIdle : Phase::kHead;
  if (head_.error()) {
    fail(*head_.error());
  } else if (head_.complete()) {
    if (auto error = parse_http_head(head_.text(), limits_, request_, framing_)) {
      fail(*error);
    } else {
      phase_ = framing_.chunked || framing_.length > 0 ? Phase::kBody : Phase::kComplete;
    }
  }
  return taken;
}

size_t HttpRequestReader::feed_body(std::string_view bytes) {
  if (framing_.chunked) {
    const size_t taken = chunks_.feed(bytes, request_.body);
    if (chunks_.error()) fail(*chunks_.error());
    if (chunks_.complete()) phase_ = Phase::kComplete;
    return taken;
  }
  const size_t count = std::min<uint64_t>(framing_.length - request_.body.size(), bytes.size());
  request_.body.append(bytes.substr(0, count));
  if (request_.body.size() == framing_.length) phase_ = Phase::kComplete;
  return count;
}

void HttpRequestReader::fail(HttpError error) {
  error_ = error;
  phase_ = Phase::kFailed;
}

}  // namespace headrace
