// How many bytes of request bodies are in memory at a time, over all connections. A body is charged
// with what has come of it, never with what it announces: who sends nothing takes no room.
#pragma once

#include <atomic>
#include <cstddef>

namespace headrace {

// Any thread. Outlives its leases.
class BodyBudget {
 public:
  explicit BodyBudget(size_t bytes_max) : bytes_max_(bytes_max) {}

  // What one body holds; given back with it.
  class Lease {
   public:
    explicit Lease(BodyBudget& budget) : budget_(budget) {}
    ~Lease() { budget_.bytes_.fetch_sub(bytes_); }
    Lease(const Lease&) = delete;

    // The body has grown. False: there is no room for it, and nothing has changed. One thread.
    bool grow_to(size_t bytes) {
      const size_t more = bytes - bytes_;
      if (budget_.bytes_.fetch_add(more) + more > budget_.bytes_max_) {
        budget_.bytes_.fetch_sub(more);
        return false;
      }
      bytes_ = bytes;
      return true;
    }

   private:
    BodyBudget& budget_;
    size_t bytes_ = 0;
  };

  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace headrace
