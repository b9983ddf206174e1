// How many bytes of answers are in memory or to come, over all requests that wait, run or are being
// written: a short body may ask for a long answer, and its client may not read it. One for the
// vectors of embeddings, which are known before, and one for answers that are not streamed, which
// grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace headrace {

// Any thread. Its leases may outlive it.
class AnswerBudget {
 public:
  explicit AnswerBudget(size_t bytes_max) : held_(std::make_shared<Held>(bytes_max)) {}

 private:
  struct Held {
    explicit Held(size_t max) : bytes_max(max) {}

    // What `own` bytes of one request are to be besides. A request that is alone is never too much.
    bool add(size_t own, size_t more) {
      size_t now = bytes.load();
      do {
        if (now > own && (now > bytes_max || more > bytes_max - now)) return false;
      } while (!bytes.compare_exchange_weak(now, now + more));
      return true;
    }

    const size_t bytes_max;
    std::atomic<size_t> bytes{0};
  };

 public:
  // What one request holds until the last byte of its answer has left. One thread.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<Held> held) : held_(std::move(held)) {}
    ~Lease() { held_->bytes.fetch_sub(bytes_); }
    Lease(const Lease&) = delete;

    // False: there is no room, and nothing has changed.
    bool grow(size_t more) {
      if (!held_->add(bytes_, more)) return false;
      bytes_ += more;
      return true;
    }
    // What it turned out to be, which is in memory already.
    void set(size_t bytes) {
      held_->bytes.fetch_add(bytes - bytes_);
      bytes_ = bytes;
    }
    size_t bytes() const { return bytes_; }

   private:
    const std::shared_ptr<Held> held_;
    size_t bytes_ = 0;
  };

  // Of what will grow.
  std::shared_ptr<Lease> begin() { return std::make_shared<Lease>(held_); }
  // nullptr: there is no room.
  std::shared_ptr<Lease> take(size_t bytes) {
    auto lease = begin();
    return lease->grow(bytes) ? lease : nullptr;
  }

  size_t bytes() const { return held_->bytes; }

 private:
  const std::shared_ptr<Held> held_;
};

// Of a token in an answer that is not streamed: its text with its place and id, and, with 0 and
// more log-probabilities, itself and so many others with theirs.
inline size_t answer_token_bytes(int32_t logprobs) {
  constexpr size_t kTextBytes = 64, kLogprobBytes = 80;
  return kTextBytes + (logprobs < 0 ? 0 : kLogprobBytes * (static_cast<size_t>(logprobs) + 1));
}

}  // namespace headrace
