// One streamed answer as it passes: the worker's journal lines are taken out and kept, whole events
// go on to the client, so that another worker can go on where this one ended. The worker's half,
// and the form of the lines: docs/scale.md.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "route/request_facts.h"
#include "server/body_budget.h"

namespace headrace {

// One thread at a time.
class StreamJournal {
 public:
  // A journal that outgrows `bytes_max`, or what `budget` has left for all of them, is given up:
  // then the stream passes but cannot be resumed. The budget, if any, outlives this.
  StreamJournal(StreamFraming framing, size_t bytes_max, BodyBudget* budget = nullptr);

  // Takes what came of the worker's answer and appends to `out` what the client gets. kCorrupt: a
  // stream that was resumed does not go on as it began.
  Status feed(std::string_view bytes, std::string& out);
  // The worker's answer has ended. Appends what is left of a stream without journal. kUnavailable:
  // it has ended inside of an event, or where an error was to follow.
  Status end(std::string& out);

  // The stream has a journal and can go on elsewhere.
  bool resumable() const { return has_head_ && !overflowed_ && !raw_; }
  // The worker has ended the stream with an error event, which is held back; what follows it is not
  // read.
  bool failed() const { return !error_event_.empty(); }
  const std::string& error_event() const { return error_event_; }
  // Something of the answer has gone to the client.
  bool has_sent() const { return sent_bytes_ > 0; }
  size_t arrivals() const { return arrivals_.size(); }

  // "headrace_resume": {...} for the body of the request that goes to another worker.
  // REQUIRES: resumable()
  std::string resume_member(bool inexact) const;
  // What is fed from now on is the answer to that request.
  void begin_resumed();
  // What is fed from now on is a new answer to the request. REQUIRES: !has_sent()
  void begin_again();

 private:
  bool take_next(std::string& out, Status& status);
  void take_line(std::string_view json);
  void take_event(std::string_view event, std::string& out, Status& status);
  void count_journal(size_t bytes);
  void check_budget();

  const StreamFraming framing_;
  const size_t bytes_max_;
  BodyBudget* const budget_;
  std::unique_ptr<BodyBudget::Lease> lease_;  // of journal_bytes_
  std::string pending_;                       // the beginning of what is not whole yet
  bool begun_ = false;                        // a first line or event has come
  bool raw_ = false;                          // it has no journal: bytes pass as they come
  bool has_head_ = false, overflowed_ = false;
  std::string head_;
  std::vector<std::string> arrivals_;
  size_t journal_bytes_ = 0;
  // Events behind the last arrival's line that the client has; of a resumed stream the first
  // `repeated_` of them have come again.
  std::vector<std::string> last_events_;
  size_t last_events_bytes_ = 0;
  size_t repeated_ = 0;
  bool dead_end_ = false;  // of the answer's form: it has failed, its worker has not
  bool lost_ = false;      // the worker has said that it cannot go on: an error follows
  std::string error_event_;
  size_t sent_bytes_ = 0;
};

// The event without what a clock says: Ollama's and llama.cpp's events have times in them.
std::string without_times(std::string_view event);

// Whether a body is a JSON object as far as its first byte tells: only such a request can be
// resumed.
bool takes_member(std::string_view body);
// The same request with one more member, the first of its body's object. REQUIRES: takes_member()
std::string with_first_member(std::string_view body, std::string_view member);

}  // namespace headrace
