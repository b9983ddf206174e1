#include "server/event_log.h"

#include <algorithm>
#include <utility>

#include "server/sse.h"

namespace headrace {
namespace {

constexpr size_t kEventPartBytes = 16 << 10;  // that are written together

}  // namespace

// One reader: writes as fast as its peer reads. On its exchange's strand, which keeps it alive.
class EventFollower final : public ExchangeObserver,
                            public std::enable_shared_from_this<EventFollower> {
 public:
  EventFollower(std::shared_ptr<EventLog> log, std::shared_ptr<Exchange> exchange,
                size_t first_event, double ping_seconds)
      : log_(std::move(log)),
        exchange_(std::move(exchange)),
        ping_seconds_(ping_seconds),
        next_(first_event) {}

  // The log knows of it once its head is out: nobody else may write first.
  void begin() {
    exchange_->observe(shared_from_this());
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->begin_stream(std::move(head));
    log_->add(shared_from_this());
    pump();
    if (!done_ && ping_seconds_ > 0) ping_later();
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
      if (part.last) {
        done_ = true;
        exchange_->end_stream(part.bytes);
      } else if (part.bytes.empty()) {
        return;
      } else {
        exchange_->write(part.bytes);
        silent_ = false;
      }
    }
  }

  // Looks twice in ping_seconds_: a stream that said nothing since the last look says something.
  void ping_later() {
    silent_ = true;
    exchange_->call_after(ping_seconds_ / 2, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->done_) return;
      if (self->silent_ && !self->exchange_->over_unsent_limit()) self->exchange_->write(kSsePing);
      self->ping_later();
    });
  }

  const std::shared_ptr<EventLog> log_;
  const std::shared_ptr<Exchange> exchange_;
  const double ping_seconds_;
  size_t next_;
  bool silent_ = true;  // since it was looked at
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

void EventLog::add(const std::shared_ptr<EventFollower>& follower) {
  std::lock_guard lock(mutex_);
  followers_.push_back(follower);
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
                      const std::shared_ptr<Exchange>& exchange, size_t first_event,
                      double ping_seconds) {
  const auto follower = std::make_shared<EventFollower>(log, exchange, first_event, ping_seconds);
  exchange->post([follower] { follower->begin(); });
}

}  // namespace headrace
