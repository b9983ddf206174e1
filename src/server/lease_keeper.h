// What a server asks of etcd next, and when, so that its entry lives. No sockets.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

// Leases (Gray and Cheriton, 1989) are of etcd's clock. This one's only says when a third of the
// lease has passed: two messages may be lost, and clocks may differ in speed.
class LeaseKeeper {
 public:
  enum class Ask : uint8_t { kGrant, kPut, kKeepAlive };

  explicit LeaseKeeper(double ttl_seconds) : ttl_seconds_(ttl_seconds) {}

  Ask ask() const { return ask_; }
  double wait_seconds() const { return wait_seconds_; }  // before that
  const std::string& lease() const { return lease_; }
  bool entered() const { return ask_ == Ask::kKeepAlive; }

  void on_granted(std::string lease);
  void on_put();
  void on_kept();
  // etcd does not know the lease: the entry is gone with it.
  void on_expired();
  // No answer: the same again.
  void on_failed();

 private:
  double retry_seconds() const;
  void go_on(Ask ask, double wait_seconds);

  const double ttl_seconds_;
  Ask ask_ = Ask::kGrant;
  double wait_seconds_ = 0;
  std::string lease_;
};

}  // namespace headrace
