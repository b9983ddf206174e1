#include "terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "terminal/cell_width.h"
#include "terminal/terminal.h"

namespace headrace {
namespace {

constexpr int kBarCells = 24;
constexpr double kHiddenSeconds = 0.3;  // what is done by then shows nothing
constexpr double kRedrawSeconds = 0.1;
constexpr double kForecastSeconds = 1;  // before, the time left would be a guess
constexpr auto kWatchPause = std::chrono::milliseconds(100);

double progress_now() { return SystemClock().now_seconds(); }

// "0:05", "12:34", "1:02:03"
std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(std::ceil(seconds), 359999.0));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string rate_text(double rate) { return fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0); }

}  // namespace

std::string progress_text(const ProgressState& state, int columns) {
  const double share = state.total > 0 ? std::clamp(state.done / state.total, 0.0, 1.0) : 0;
  const int cells = static_cast<int>(share * kBarCells);
  std::string text = fmt::format("{} [{:#<{}}{: <{}}] {:3.0f} %", state.label, "", cells, "",
                                 kBarCells - cells, std::floor(share * 100));
  const bool forecast = share > 0 && state.seconds >= kForecastSeconds;
  if (forecast && !state.unit.empty()) {
    text += fmt::format(", {} {}/s", rate_text(state.done / state.seconds), state.unit);
  }
  if (forecast) {
    text += fmt::format(", {} left", clock_text(state.seconds * (1 - share) / share));
  }
  if (!state.note.empty()) text += fmt::format("  {}", state.note);
  return std::string(prefix_of_columns(text, columns));
}

Progress::Progress(std::string label, std::string unit)
    : terminal_(knows_sequences(STDERR_FILENO)),
      label_(std::move(label)),
      unit_(std::move(unit)),
      started_(progress_now()) {}

Progress::~Progress() { take_away(); }

void Progress::begin(std::string_view label) {
  if (label == label_) return;
  label_ = label;
  started_ = progress_now();
}

void Progress::update(double done, double total, std::string_view note) {
  if (!terminal_) return;
  const double now = progress_now();
  const double last = shown_ ? shown_at_ + kRedrawSeconds : started_ + kHiddenSeconds;
  if (now < last && done < total) return;
  if (!shown_ && now < last) return;
  shown_ = true;
  shown_at_ = now;
  // A line that fills its row would wrap.
  const int columns = terminal_size(STDERR_FILENO).columns - 1;
  fmt::print(stderr, "\r\x1b[K{}",
             progress_text({.label = label_,
                            .done = done,
                            .total = total,
                            .seconds = now - started_,
                            .unit = unit_,
                            .note = note},
                           columns));
  std::fflush(stderr);
}

void Progress::take_away() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

ProgressWatch::ProgressWatch(std::string label, std::string unit, double total,
                             std::function<double()> done)
    : progress_(std::move(label), std::move(unit)) {
  if (!progress_.visible()) return;
  thread_ = std::thread([this, total, done = std::move(done)] {
    while (!over_) {
      progress_.update(done(), total);
      std::this_thread::sleep_for(kWatchPause);
    }
  });
}

ProgressWatch::~ProgressWatch() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace headrace
