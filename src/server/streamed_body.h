// How a streamed answer's body is told from what comes behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace headrace {

struct StreamedBody {
  bool chunked = false;          // else it ends with the connection, or
  std::optional<uint64_t> left;  // after so many bytes, as its head has told

  void append(std::string& out, std::string_view bytes) {
    if (left) {
      bytes = bytes.substr(0, *left);
      *left -= bytes.size();
    }
    if (chunked && !bytes.empty()) return append_chunk(out, bytes);
    out += bytes;
  }
  void append_end(std::string& out) const {
    if (chunked) out += kLastChunk;
  }
  bool is_short() const { return left.value_or(0) > 0; }
};

}  // namespace headrace
