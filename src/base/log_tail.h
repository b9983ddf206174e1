// The last lines that were logged. Apart from log.h, which all that logs includes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

struct LoggedLine {
  uint64_t number = 0;  // from 1
  std::string text;     // as it was written, without its end, cut to kLoggedLineBytes
};
inline constexpr size_t kLoggedLines = 200, kLoggedLineBytes = 1000;

// The last kLoggedLines lines behind number `after`, oldest first. Any thread.
std::vector<LoggedLine> log_tail(uint64_t after);

}  // namespace headrace
