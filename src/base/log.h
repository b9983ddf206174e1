// Log lines on stderr: "time level text". Ids and counts only, never prompt or output text.
// Control characters are escaped. Nobody who reads holds nobody up: lines that stderr does not take
// within kLogPatience are lost, and the next one that it takes says how many. Any thread.
#pragma once

#include <chrono>
#include <string_view>

#include <fmt/core.h>

namespace headrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

inline constexpr std::chrono::milliseconds kLogPatience{200};

void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, std::string_view text);
// A line that another process logged, or what is one already, as it is.
void log_raw_line(std::string_view line);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kDebug)
    log_line(LogLevel::kDebug, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kInfo)
    log_line(LogLevel::kInfo, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kWarning)
    log_line(LogLevel::kWarning, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kError)
    log_line(LogLevel::kError, fmt::vformat(format, fmt::make_format_args(args...)));
}

}  // namespace headrace
