#include "apps/request_reader.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace headrace {

// Filled by the engine thread. Bounded by the request: one emission a step and choice.
struct RequestReader::Mailbox {
  std::mutex mutex;
  std::condition_variable filled;
  std::deque<Emission> emissions;
  bool closed = false;

  void put(const Emission& emission) {
    {
      std::lock_guard lock(mutex);
      emissions.push_back(emission);
    }
    filled.notify_one();
  }
  void close() {
    {
      std::lock_guard lock(mutex);
      closed = true;
    }
    filled.notify_one();
  }
};

RequestReader::RequestReader(Engine& engine, RequestId id)
    : engine_(engine), id_(id), mailbox_(std::make_shared<Mailbox>()) {}

RequestReader::~RequestReader() { cancel(); }

Result<std::unique_ptr<RequestReader>> RequestReader::submit(Engine& engine, Request request) {
  request.id = engine.next_request_id();
  std::unique_ptr<RequestReader> reader(new RequestReader(engine, request.id));
  // The engine drops its sink after the last emission: that closes the mailbox.
  std::shared_ptr<void> closer(nullptr, [mailbox = reader->mailbox_](void*) { mailbox->close(); });
  HR_RETURN_IF_ERROR(engine.submit(
      std::move(request),
      [mailbox = reader->mailbox_, closer](const Emission& emission) { mailbox->put(emission); }));
  return reader;
}

std::optional<Emission> RequestReader::next() {
  std::unique_lock lock(mailbox_->mutex);
  mailbox_->filled.wait(lock, [&] { return mailbox_->closed || !mailbox_->emissions.empty(); });
  if (mailbox_->emissions.empty()) return std::nullopt;
  Emission emission = std::move(mailbox_->emissions.front());
  mailbox_->emissions.pop_front();
  return emission;
}

}  // namespace headrace
