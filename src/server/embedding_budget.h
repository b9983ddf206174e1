// How many bytes of vectors are in memory or to come, over all requests for embeddings that wait,
// run or are being written: a short body may ask for a long answer, and its client may not read it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace headrace {

// Any thread. Its leases may outlive it.
class EmbeddingBudget {
 public:
  explicit EmbeddingBudget(size_t bytes_max) : bytes_max_(bytes_max) {}

  // What one request holds until the last byte of its answer has left.
  class Lease {
   public:
    Lease(std::shared_ptr<std::atomic<size_t>> held, size_t bytes)
        : held_(std::move(held)), bytes_(bytes) {}
    ~Lease() { held_->fetch_sub(bytes_); }
    Lease(const Lease&) = delete;

   private:
    const std::shared_ptr<std::atomic<size_t>> held_;
    const size_t bytes_;
  };

  // nullptr: there is no room. A request that is alone is never too much.
  std::shared_ptr<Lease> take(size_t bytes) {
    size_t held = held_->load();
    do {
      if (held > 0 && (held > bytes_max_ || bytes > bytes_max_ - held)) return nullptr;
    } while (!held_->compare_exchange_weak(held, held + bytes));
    try {
      return std::make_shared<Lease>(held_, bytes);
    } catch (...) {
      held_->fetch_sub(bytes);
      throw;
    }
  }

  size_t bytes() const { return *held_; }

 private:
  const size_t bytes_max_;
  const std::shared_ptr<std::atomic<size_t>> held_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace headrace
