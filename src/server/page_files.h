// The files of the web page (src/server/page/), which travel in the program.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace headrace {

struct PageFile {
  std::string_view name;  // "chat.js"
  std::string_view etag;  // a hash of its content in quotes, as in If-None-Match
  size_t plain_bytes = 0;
  std::string_view gzip;  // its content
};

// In the order of their names. Any thread.
std::span<const PageFile> page_files();

}  // namespace headrace
