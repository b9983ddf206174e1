#include "route/stream_journal.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "route/json_members.h"

namespace headrace {
namespace {

constexpr std::string_view kJournalLine = ": journal ";
constexpr size_t kEventBytesMax = 16 << 20;

// `failed`: the answer itself has ended so, and a response says it in these words.
bool is_error_event(std::string_view event, bool failed) {
  for (const std::string_view begin : {"data: {\"error\":", "event: error\n", "{\"error\":"}) {
    if (event.starts_with(begin)) return true;
  }
  return !failed && event.starts_with("event: response.failed\n");
}

// An empty line between events: nothing of an arrival.
bool says_nothing(std::string_view event) {
  return event.starts_with(':') || event.find_first_not_of("\r\n") == event.npos;
}

}  // namespace

StreamJournal::StreamJournal(StreamFraming framing, size_t bytes_max, BodyBudget* budget)
    : framing_(framing), bytes_max_(bytes_max), budget_(budget) {}

Status StreamJournal::feed(std::string_view bytes, std::string& out) {
  if (failed()) return ok_status();
  const size_t before = out.size();
  Status status;
  if (raw_) {
    out += bytes;
  } else {
    pending_ += bytes;
    while (status.ok() && !failed() && take_next(out, status)) {
    }
    if (pending_.size() > kEventBytesMax) status = corrupt("an event without end");
  }
  sent_bytes_ += out.size() - before;
  return status;
}

Status StreamJournal::end(std::string& out) {
  if (failed()) return ok_status();
  const std::string rest = std::exchange(pending_, {});
  if (raw_ || !begun_) {
    out += rest;
    sent_bytes_ += rest.size();
    return ok_status();
  }
  const bool whole = rest.find_first_not_of("\r\n") == rest.npos;
  return whole && !lost_ ? ok_status() : unavailable("the stream ended too early");
}

// One line of the journal or one event. False: it is not whole yet.
bool StreamJournal::take_next(std::string& out, Status& status) {
  if (pending_.empty()) return false;
  const std::string_view text = pending_;
  const size_t shown = std::min(text.size(), kJournalLine.size());
  const bool may_be_line = text.substr(0, shown) == kJournalLine.substr(0, shown);
  if (may_be_line && shown < kJournalLine.size()) return false;
  if (!begun_ && !may_be_line) {
    raw_ = begun_ = true;
    out += pending_;
    pending_.clear();
    return false;
  }
  const bool by_line = framing_ == StreamFraming::kLines && !may_be_line;
  const std::string_view end = by_line ? "\n" : "\n\n";
  const size_t at = text.find(end);
  if (at == text.npos) return false;
  const size_t whole = at + end.size();
  begun_ = true;
  if (may_be_line) {
    take_line(text.substr(kJournalLine.size(), at - kJournalLine.size()));
    if (lost_) {
    } else if (repeated_ < last_events_.size()) {
      status = corrupt("the resumed stream lacks what was sent");
    } else {
      last_events_.clear();
      last_events_bytes_ = repeated_ = 0;
    }
  } else {
    take_event(text.substr(0, whole), out, status);
  }
  pending_.erase(0, whole);
  return true;
}

void StreamJournal::take_line(std::string_view json) {
  const std::string_view head = json_member(json, "head");
  if (!head.empty()) {
    head_ = head;
    has_head_ = true;
    return count_journal(head.size());
  }
  if (!json_member(json, "lost").empty()) {
    lost_ = true;
    return;
  }
  dead_end_ = dead_end_ || json_member(json, "f") == "\"dead_end\"";
  if (!overflowed_) arrivals_.emplace_back(json);
  count_journal(json.size());
}

void StreamJournal::count_journal(size_t bytes) {
  journal_bytes_ += bytes;
  check_budget();
}

void StreamJournal::check_budget() {
  if (overflowed_) return;
  if (budget_ && !lease_) lease_ = std::make_unique<BodyBudget::Lease>(*budget_);
  const size_t bytes = journal_bytes_ + last_events_bytes_;
  if (bytes <= bytes_max_ && (!lease_ || lease_->grow_to(bytes))) return;
  overflowed_ = true;
  arrivals_ = {};
  lease_.reset();
}

void StreamJournal::take_event(std::string_view event, std::string& out, Status& status) {
  if (says_nothing(event)) {
    out += event;
    return;
  }
  if (lost_ || is_error_event(event, dead_end_)) {
    error_event_ = event;
    return;
  }
  if (repeated_ < last_events_.size()) {
    const std::string& sent = last_events_[repeated_++];
    if (sent != event && without_times(sent) != without_times(event)) {
      status = corrupt("the resumed stream differs from what was sent");
    }
    return;
  }
  out += event;
  if (overflowed_) return;
  last_events_bytes_ += event.size() + sizeof(std::string);
  check_budget();
  if (overflowed_) {
    last_events_ = {};
    last_events_bytes_ = 0;
  } else {
    last_events_.emplace_back(event);
  }
  repeated_ = last_events_.size();
}

std::string StreamJournal::resume_member(bool inexact) const {
  CHECK(resumable());
  std::string member = "\"headrace_resume\": {\"head\": " + head_ + ", \"journal\": [";
  for (const std::string& arrival : arrivals_) {
    if (&arrival != &arrivals_.front()) member += ",";
    member += arrival;
  }
  member += "]";
  if (!arrivals_.empty() || !last_events_.empty()) member += ", \"resend_last\": true";
  if (inexact) member += ", \"inexact\": true";
  return member + "}";
}

void StreamJournal::begin_resumed() {
  pending_.clear();
  lost_ = false;
  error_event_.clear();
  repeated_ = 0;
}

void StreamJournal::begin_again() {
  CHECK(!has_sent());
  pending_.clear();
  error_event_.clear();
  lost_ = begun_ = raw_ = has_head_ = overflowed_ = dead_end_ = false;
  head_.clear();
  arrivals_.clear();
  journal_bytes_ = 0;
  lease_.reset();
  last_events_.clear();
  last_events_bytes_ = repeated_ = 0;
}

std::string without_times(std::string_view event) {
  constexpr std::string_view kTimeNames[] = {"created_at", "_duration", "_ms", "_per_second",
                                             "e2e_latency"};
  std::string out;
  while (true) {
    const size_t colon = event.find("\":");
    if (colon == event.npos) return out.append(event);
    const std::string_view name = event.substr(0, colon);
    out += event.substr(0, colon + 2);
    event.remove_prefix(colon + 2);
    const bool is_time = std::any_of(std::begin(kTimeNames), std::end(kTimeNames),
                                     [&](std::string_view each) { return name.ends_with(each); });
    if (!is_time) continue;
    const bool quoted = event.starts_with('"');
    const size_t end = quoted ? event.find('"', 1) : event.find_first_not_of("0123456789.eE+-");
    event.remove_prefix(std::min(end == event.npos ? end : end + (quoted ? 1 : 0), event.size()));
  }
}

bool takes_member(std::string_view body) {
  const size_t first = body.find_first_not_of(" \t\r\n");
  return first != body.npos && body[first] == '{';
}

std::string with_first_member(std::string_view body, std::string_view member) {
  CHECK(takes_member(body));
  const size_t brace = body.find('{');
  const size_t next = body.find_first_not_of(" \t\r\n", brace + 1);
  const bool empty = next == body.npos || body[next] == '}';
  std::string out;
  out.reserve(body.size() + member.size() + 2);
  out += body.substr(0, brace + 1);
  out += member;
  if (!empty) out += ",";
  out += body.substr(brace + 1);
  return out;
}

}  // namespace headrace
