#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <deque>
#include <mutex>
#include <string>

#include "base/json.h"
#include "base/log_format.h"
#include "base/log_tail.h"

namespace headrace {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};
std::atomic<LogFormat> g_format{LogFormat::kText};

std::string escape_controls(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

// "2026-01-02T03:04:05.678Z"
std::string time_stamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", stamp, millis);
}

// stderr, whose other end may be a pipe that nobody empties.
class LogOutput {
 public:
  // One at a time: lines of threads do not mix.
  void write_line(std::string_view line) {
    std::lock_guard lock(mutex_);
    const bool taken =
        lost_ == 0
            ? write(line)
            : write(fmt::format("... {} lines were lost: stderr was not read\n{}", lost_, line));
    lost_ = taken ? 0 : lost_ + 1;
  }

 private:
  bool write(std::string_view text) {
    while (!text.empty()) {
      // A pipe that can be written takes so many bytes at once (pipe(7)).
      const std::string_view part = text.substr(0, PIPE_BUF);
      const ssize_t count = takes_bytes() ? ::write(STDERR_FILENO, part.data(), part.size()) : 0;
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      text.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  bool takes_bytes() {
    pollfd file{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const auto patience = stuck_ ? 0 : static_cast<int>(kLogPatience.count());  // once
    stuck_ = ::poll(&file, 1, patience) <= 0;
    return !stuck_;
  }

  std::mutex mutex_;
  int64_t lost_ = 0;    // lines since the last that was written
  bool stuck_ = false;  // it did not take the last one
};

LogOutput& log_output() {
  static auto* const output = new LogOutput;  // for ever: threads log until the end
  return *output;
}

// What log_tail() tells.
class LogTail {
 public:
  void add(std::string_view line) {
    size_t length = std::min(line.size(), kLoggedLineBytes);
    const auto inside_character = [&] {
      return length < line.size() && (static_cast<unsigned char>(line[length]) & 0xc0) == 0x80;
    };
    while (inside_character()) --length;
    std::lock_guard lock(mutex_);
    if (lines_.size() == kLoggedLines) lines_.pop_front();
    lines_.push_back({++count_, std::string(line.substr(0, length))});
  }
  std::vector<LoggedLine> since(uint64_t after) const {
    std::lock_guard lock(mutex_);
    std::vector<LoggedLine> found;
    for (const LoggedLine& line : lines_) {
      if (line.number > after) found.push_back(line);
    }
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<LoggedLine> lines_;
  uint64_t count_ = 0;
};

LogTail& tail() {
  static LogTail& lines = *new LogTail;  // threads may log while the process ends
  return lines;
}

// `line` is without its end.
void write_line(std::string_view line) {
  tail().add(line);
  log_output().write_line(fmt::format("{}\n", line));
}

Json json_of(const std::variant<std::string_view, int64_t, double>& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return Json(std::string(*text));
  if (const auto* number = std::get_if<int64_t>(&value)) return Json(*number);
  return Json(std::get<double>(value));
}

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }

void set_log_format(LogFormat format) { g_format.store(format, std::memory_order_relaxed); }

void log_raw_line(std::string_view line) { write_line(line); }

std::vector<LoggedLine> log_tail(uint64_t after) { return tail().since(after); }

void log_line(LogLevel level, std::string_view text) { log_event(level, text, {}); }

void log_event(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  if (g_format.load(std::memory_order_relaxed) == LogFormat::kText) {
    return write_line(
        fmt::format("{} {} {}", time_stamp(), level_name(level), escape_controls(text)));
  }
  Json line = Json::object();
  line.set("time", time_stamp()).set("level", level_name(level)).set("message", std::string(text));
  for (const LogField& field : fields) line.set(std::string(field.name), json_of(field.value));
  write_line(write_json(line));
}

}  // namespace headrace
