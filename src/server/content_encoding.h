// Whole answers as zstd or gzip, for clients that ask for it. Streams are never encoded: an encoder
// would hold tokens back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace headrace {

enum class ContentCoding : uint8_t { kIdentity, kGzip, kZstd };

// What a client wants most of these, by its Accept-Encoding (RFC 9110 12.5.3). Of equals zstd,
// which is faster and smaller; `*` is gzip, which everybody reads.
ContentCoding choose_coding(std::string_view accept_encoding);

// Whether the client takes gzip at all, for what lies here compressed.
bool takes_gzip(std::string_view accept_encoding);

// What was compressed, of which the size is known; "" where that is not what it holds.
std::string gunzip(std::string_view gzip, size_t plain_bytes);

// Which bodies are worth it: below, headers and packet are what is sent; above, one answer would
// keep an HTTP thread from the streams of others.
inline constexpr size_t kEncodedBytesMin = 1 << 10, kEncodedBytesMax = 1 << 20;

// Says that the answer depends on Accept-Encoding, and encodes its body where that is worth it and
// makes it smaller. An answer that says its Content-Encoding stays as it is.
void encode_content(ContentCoding coding, HttpResponse& response);

}  // namespace headrace
