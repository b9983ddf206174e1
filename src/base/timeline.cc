#include "base/timeline.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include <fmt/format.h>

namespace headrace {
namespace {

double clock_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Seconds that this process has lived: field 22 of /proc/self/stat is its start in ticks since the
// machine's. Fields are counted from the end of the program's name, which may hold anything.
std::optional<double> process_age() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  constexpr int kStartAfterName = 20;
  for (int i = 0; i < kStartAfterName; ++i) fields >> field;
  const auto ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double start = std::strtod(field.c_str(), nullptr) / ticks_per_second;
  const double age = clock_seconds(CLOCK_BOOTTIME) - start;
  if (!fields || start <= 0 || age < 0) return std::nullopt;
  return age;
}

}  // namespace

Timeline::Timeline() : origin_(clock_seconds(CLOCK_MONOTONIC) - process_age().value_or(0)) {}

double Timeline::seconds() const { return clock_seconds(CLOCK_MONOTONIC) - origin_; }

Timeline::Span::Span(Timeline* timeline, std::string_view name) : timeline_(timeline) {
  if (timeline_ == nullptr) return;
  const std::lock_guard lock(timeline_->mutex_);
  index_ = timeline_->entries_.size();
  timeline_->entries_.push_back({std::string(name), timeline_->seconds(), -1});
}

void Timeline::Span::end() {
  if (timeline_ == nullptr) return;
  const std::lock_guard lock(timeline_->mutex_);
  timeline_->entries_[index_].end = timeline_->seconds();
  timeline_ = nullptr;
}

void Timeline::mark(std::string_view name) {
  const double now = seconds();
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::string(name), now, now});
}

std::string Timeline::to_string() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Entry& entry : entries_) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{:.3f}", entry.begin);
    if (entry.end > entry.begin) text += fmt::format(" to {:.3f}", entry.end);
    text += fmt::format("{} s {}", entry.end < 0 ? " to ..." : "", entry.name);
  }
  return text;
}

}  // namespace headrace
