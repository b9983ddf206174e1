// Whole answers as gzip, for clients that ask for it. Streams are never encoded: an encoder would
// hold tokens back.
#pragma once

#include <string_view>

#include "server/http_message.h"

namespace headrace {

// Whether a client takes gzip, by its Accept-Encoding (RFC 9110 12.5.3).
bool accepts_gzip(std::string_view accept_encoding);

// Which bodies are worth it: below, headers and packet are what is sent; above, one answer would
// keep an HTTP thread from the streams of others.
inline constexpr size_t kEncodedBytesMin = 1 << 10, kEncodedBytesMax = 1 << 20;

// Says that the answer depends on Accept-Encoding, and encodes its body if `gzip` is true, where
// the body is worth it and gets smaller.
void encode_content(bool gzip, HttpResponse& response);

}  // namespace headrace
