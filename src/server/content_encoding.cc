#include "server/content_encoding.h"

#include <zlib.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/header_text.h"

namespace headrace {
namespace {

constexpr int kFastest = 1;           // streams wait on the same thread
constexpr int kGzipWindow = 15 + 16;  // 32 KiB, with gzip's frame instead of zlib's
constexpr int kMemoryLevel = 8;       // zlib's default

// A weight is 0 to 1 with up to three decimals.
bool is_zero_weight(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  if (at == parameters.npos) return false;
  return trim(parameters.substr(at + 2)).find_first_not_of("0.") == std::string_view::npos;
}

// Empty: it got no smaller, or there was no memory.
std::string gzip_of(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, kFastest, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return {};
  }
  std::string encoded(text.size(), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(encoded.data());
  stream.avail_out = static_cast<uInt>(encoded.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  encoded.resize(whole ? stream.total_out : 0);
  deflateEnd(&stream);
  return encoded;
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  bool any = false;
  while (!accept_encoding.empty()) {
    const size_t comma = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view item = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    const size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view coding = trim(item.substr(0, semicolon));
    const bool wanted = !is_zero_weight(item.substr(semicolon));
    if (coding == "gzip" || coding == "x-gzip") return wanted;
    if (coding == "*") any = wanted;
  }
  return any;
}

void encode_content(bool gzip, HttpResponse& response) {
  if (response.body.size() < kEncodedBytesMin || response.body.size() > kEncodedBytesMax) return;
  response.headers.push_back({"Vary", "Accept-Encoding"});
  if (!gzip) return;
  std::string encoded = gzip_of(response.body);
  if (encoded.empty()) return;
  response.body = std::move(encoded);
  response.headers.push_back({"Content-Encoding", "gzip"});
}

}  // namespace headrace
