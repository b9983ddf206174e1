#include "server/event_log.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kEventPartBytes = 16 << 10;  // that are written together

}  // namespace

// One reader: writes as fast as its peer reads. On its exchange's strand, which keeps it alive.
class EventFollower final : public ExchangeObserver,
                            public std::enable_shared_from_this<EventFollower> {
 public:
  EventFollower(std::shared_ptr<const EventLog> log, std::shared_ptr<Exchange> exchange,
                size_t first_event)
      : log_(std::move(log)), exchange_(std::move(exchange)), next_(first_event) {}

  void begin() {
    exchange_->observe(shared_from_this());
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->begin_stream(std::move(head));
    pump();
  }
  void wake() {
    exchange_->post([self = shared_from_this()] { self->pump(); });
  }

  void on_peer_gone() override { done_ = true; }
  void on_writable() override { pump(); }

 private:
  void pump() {
    while (!done_ && !exchange_->over_unsent_limit()) {
      const EventLog::Part part = log_->read(next_, kEventPartBytes);
      next_ = part.next;
      if (!part.bytes.empty()) exchange_->write(part.bytes);
      if (part.last) {
        done_ = true;
        exchange_->end_stream();
      } else if (part.bytes.empty()) {
        return;
      }
    }
  }

  const std::shared_ptr<const EventLog> log_;
  const std::shared_ptr<Exchange> exchange_;
  size_t next_;
  bool done_ = false;
};

void EventLog::append(std::string_view events) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (bytes_.size() + events.size() > bytes_max_) {
      closed_ = true;
      whole_ = false;
      bytes_ = {};
      ends_ = {};
    } else {
      const size_t before = bytes_.size();
      bytes_ += events;
      constexpr std::string_view kEnd = "\n\n";
      for (size_t at = events.find(kEnd); at != events.npos; at = events.find(kEnd, at + 2)) {
        ends_.push_back(before + at + kEnd.size());
      }
    }
  }
  wake();
}

void EventLog::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake();
}

size_t EventLog::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_.size() + ends_.size() * sizeof(size_t);
}

bool EventLog::whole() const {
  std::lock_guard lock(mutex_);
  return whole_;
}

EventLog::Part EventLog::read(size_t event, size_t bytes_max) const {
  std::lock_guard lock(mutex_);
  Part part;
  part.next = event;
  if (event < ends_.size()) {
    const size_t begin = event == 0 ? 0 : ends_[event - 1];
    while (part.next < ends_.size() &&
           (part.next == event || ends_[part.next] - begin <= bytes_max)) {
      ++part.next;
    }
    part.bytes = bytes_.substr(begin, ends_[part.next - 1] - begin);
  }
  part.last = closed_ && part.next >= ends_.size();
  return part;
}

void EventLog::wake() {
  std::vector<std::shared_ptr<EventFollower>> followers;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(followers_, [](const auto& follower) { return follower.expired(); });
    for (const auto& follower : followers_) followers.push_back(follower.lock());
  }
  for (const auto& follower : followers) {
    if (follower) follower->wake();
  }
}

void EventLog::follow(const std::shared_ptr<EventLog>& log,
                      const std::shared_ptr<Exchange>& exchange, size_t first_event) {
  const auto follower = std::make_shared<EventFollower>(log, exchange, first_event);
  {
    std::lock_guard lock(log->mutex_);
    log->followers_.push_back(follower);
  }
  exchange->post([follower] { follower->begin(); });
}

}  // namespace headrace
