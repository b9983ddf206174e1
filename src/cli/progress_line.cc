#include "cli/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr int kBarCells = 24;
constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (percent_shown_ >= 0) fmt::print(stderr, "{}", kEraseLine);
}

LoadProgress ProgressLine::callback() {
  if (!terminal_) return nullptr;
  return [this](std::string_view stage, double done) { show(stage, done); };
}

void ProgressLine::show(std::string_view stage, double done) {
  const int percent = static_cast<int>(std::clamp(done, 0.0, 1.0) * 100);
  if (percent == percent_shown_) return;
  percent_shown_ = percent;
  const int cells = percent * kBarCells / 100;
  fmt::print(stderr, "{}{} [{:#<{}}{: <{}}] {:3} %", kEraseLine, stage, "", cells, "",
             kBarCells - cells, percent);
}

Result<std::unique_ptr<ModelStack>> load_with_progress(const StackOptions& options,
                                                       std::unique_ptr<ModelSource> source) {
  ProgressLine line;
  return ModelStack::load(options, line.callback(), std::move(source));
}

}  // namespace headrace
