#include "server/lease_keeper.h"

#include <algorithm>
#include <utility>

namespace headrace {

void LeaseKeeper::on_granted(std::string lease) {
  lease_ = std::move(lease);
  go_on(Ask::kPut, 0);
}

void LeaseKeeper::on_put() { go_on(Ask::kKeepAlive, ttl_seconds_ / 3); }

void LeaseKeeper::on_kept() { go_on(Ask::kKeepAlive, ttl_seconds_ / 3); }

// A lease that is gone before it was used is not asked for in a circle without a pause.
void LeaseKeeper::on_expired() {
  go_on(Ask::kGrant, ask_ == Ask::kKeepAlive ? 0 : retry_seconds());
}

void LeaseKeeper::on_failed() { wait_seconds_ = retry_seconds(); }

double LeaseKeeper::retry_seconds() const { return std::min(1.0, ttl_seconds_ / 6); }

void LeaseKeeper::go_on(Ask ask, double wait_seconds) {
  ask_ = ask;
  wait_seconds_ = wait_seconds;
}

}  // namespace headrace
