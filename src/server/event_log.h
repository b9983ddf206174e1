// The events of a stream that clients may read again, from any of them on, also while more come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/exchange.h"

namespace headrace {

class EventFollower;

// Any thread.
class EventLog {
 public:
  // Where there come more bytes, nothing is kept any more and who follows is let go.
  explicit EventLog(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whole server-sent events, numbered from 0 in order of their coming.
  void append(std::string_view events);
  void close();  // no more come
  size_t bytes() const;
  bool whole() const;  // nothing was dropped

  // Sends `exchange` the events from that number on and, once all have come, ends its stream.
  // `ping_seconds`: it is never silent for longer; 0: it may be.
  static void follow(const std::shared_ptr<EventLog>& log,
                     const std::shared_ptr<Exchange>& exchange, size_t first_event,
                     double ping_seconds);

 private:
  friend class EventFollower;
  struct Part {
    std::string bytes;  // of whole events; empty: none has come
    size_t next = 0;    // the event behind them
    bool last = false;  // no more come
  };
  Part read(size_t event, size_t bytes_max) const;
  void add(const std::shared_ptr<EventFollower>& follower);
  void wake();

  const size_t bytes_max_;
  mutable std::mutex mutex_;
  std::string bytes_;
  std::vector<size_t> ends_;  // of each event, in bytes_
  bool closed_ = false, whole_ = true;
  std::vector<std::weak_ptr<EventFollower>> followers_;
};

}  // namespace headrace
