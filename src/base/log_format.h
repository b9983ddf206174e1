// The form of log lines: text for people, or an object of JSON a line for collectors. Apart from
// log.h, which all that logs includes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "base/log.h"

namespace headrace {

enum class LogFormat { kText, kJson };

// Before threads log.
void set_log_format(LogFormat format);

struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

// A line with parts that a collector can ask for: `text` and, as JSON, the fields beside it
//   {"time": ..., "level": "info", "message": text, name: value, ...}
// As text it is log_line(level, text). Any thread.
void log_event(LogLevel level, std::string_view text, std::initializer_list<LogField> fields);

}  // namespace headrace
