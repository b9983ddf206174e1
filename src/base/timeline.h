// Timeline: what a start spends its time on. Spans of work on any thread, told together in the
// order in which they began, in seconds since the process began.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

class Timeline {
 public:
  // Time 0 is the start of the process as the kernel has it (to 10 ms), or now where it does not
  // say.
  Timeline();

  // Work from its making to end(), or to the end of its life. Does nothing without a timeline.
  class Span {
   public:
    Span(Timeline* timeline, std::string_view name);
    ~Span() { end(); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    void end();

   private:
    Timeline* timeline_;
    size_t index_ = 0;
  };
  // A point.
  void mark(std::string_view name);

  double seconds() const;  // since the process began
  // "0.012 to 0.145 s CUDA context; ...". A span that has not ended has no second number.
  std::string to_string() const;

 private:
  struct Entry {
    std::string name;
    double begin;
    double end;  // < 0: not yet
  };
  double origin_;  // of the monotonic clock
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace headrace
