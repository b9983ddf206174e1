#include "server/content_encoding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/header_text.h"

namespace headrace {
namespace {

constexpr int kFastest = 1;           // streams wait on the same thread
constexpr int kGzipWindow = 15 + 16;  // 32 KiB, with gzip's frame instead of zlib's
constexpr int kMemoryLevel = 8;       // zlib's default

// Of "; q=0.5", in thousandths; 1000 where there is none, 0 where it is malformed.
int weight_of(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  if (at == parameters.npos) return 1000;
  const std::string_view text = trim(parameters.substr(at + 2));
  if (text.starts_with('1')) return 1000;
  if (!text.starts_with("0.")) return 0;
  int weight = 0;
  for (size_t i = 2; i < 5; ++i) {
    const char c = i < text.size() ? text[i] : '0';
    weight = 10 * weight + (c >= '0' && c <= '9' ? c - '0' : 0);
  }
  return weight;
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

// The same.
std::string zstd_of(std::string_view text) {
  std::string encoded(text.size(), '\0');
  const size_t size =
      ZSTD_compress(encoded.data(), encoded.size(), text.data(), text.size(), kFastest);
  encoded.resize(ZSTD_isError(size) ? 0 : size);
  return encoded;
}

// What a client says of each, in thousandths; 0: it does not take it.
struct CodingWeights {
  int gzip = 0, zstd = 0;
};

CodingWeights coding_weights(std::string_view accept_encoding) {
  constexpr int kUnnamed = -1;
  int gzip = kUnnamed, zstd = kUnnamed, any = kUnnamed;
  while (!accept_encoding.empty()) {
    const size_t comma = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view item = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    const size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view coding = trim(item.substr(0, semicolon));
    const int weight = weight_of(item.substr(semicolon));
    if (coding == "gzip" || coding == "x-gzip") gzip = weight;
    if (coding == "zstd") zstd = weight;
    if (coding == "*") any = weight;
  }
  if (gzip == kUnnamed) gzip = any;
  return {std::max(gzip, 0), std::max(zstd, 0)};
}

}  // namespace

ContentCoding choose_coding(std::string_view accept_encoding) {
  const CodingWeights weights = coding_weights(accept_encoding);
  if (weights.zstd > 0 && weights.zstd >= weights.gzip) return ContentCoding::kZstd;
  return weights.gzip > 0 ? ContentCoding::kGzip : ContentCoding::kIdentity;
}

bool takes_gzip(std::string_view accept_encoding) {
  return coding_weights(accept_encoding).gzip > 0;
}

std::string gunzip(std::string_view gzip, size_t plain_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return {};
  std::string plain(plain_bytes, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  const bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole ? plain : std::string();
}

void encode_content(ContentCoding coding, HttpResponse& response) {
  for (const HttpHeader& header : response.headers) {
    if (header.name == "Content-Encoding") return;
  }
  if (response.body.size() < kEncodedBytesMin || response.body.size() > kEncodedBytesMax) return;
  response.headers.push_back({"Vary", "Accept-Encoding"});
  if (coding == ContentCoding::kIdentity) return;
  const bool zstd = coding == ContentCoding::kZstd;
  std::string encoded = zstd ? zstd_of(response.body) : gzip_of(response.body);
  if (encoded.empty()) return;
  response.body = std::move(encoded);
  response.headers.push_back({"Content-Encoding", zstd ? "zstd" : "gzip"});
}

}  // namespace headrace
