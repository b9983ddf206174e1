// Log lines on stderr: "time level text". Ids and counts only, never prompt or output text.
// Control characters are escaped. Any thread.
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace headrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, std::string_view text);

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
