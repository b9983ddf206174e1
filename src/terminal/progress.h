// How far something is that takes a while: one line on a terminal's stderr, with its rate and the
// time that is left, which vanishes when it is done. Nothing where stderr is no terminal, and
// nothing of what is done in a moment.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace headrace {

struct ProgressState {
  std::string_view label;
  double done = 0, total = 1;
  double seconds = 0;     // since done was 0
  std::string_view unit;  // of done: "requests"; empty: the share alone is shown
  std::string_view note;  // behind it
};

// "label [#####     ]  42 %, 12.3 requests/s, 1:05 left  note", cut at `columns`.
std::string progress_text(const ProgressState& state, int columns);

// One thread.
class Progress {
 public:
  explicit Progress(std::string label, std::string unit = {});
  ~Progress();  // takes the line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether anything would be shown.
  bool visible() const { return terminal_; }
  // Another part of the whole, whose rate and time are its own.
  void begin(std::string_view label);
  void update(double done, double total, std::string_view note = {});
  // For something else to be written. It comes again with the next update.
  void take_away();

 private:
  const bool terminal_;
  std::string label_;
  const std::string unit_;
  double started_ = 0, shown_at_ = 0;
  bool shown_ = false;
};

// The same for what blocks: asks `done` a few times a second on a thread of its own, as long as it
// lives.
class ProgressWatch {
 public:
  ProgressWatch(std::string label, std::string unit, double total, std::function<double()> done);
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

 private:
  Progress progress_;
  std::atomic<bool> over_{false};
  std::thread thread_;  // none where nothing would be shown
};

}  // namespace headrace
