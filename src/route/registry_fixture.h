// etcd of a simulation: keys that live as long as their leases, one revision for each change, and
// replicas that lag. Workers enter themselves with the real LeaseKeeper, over a network that
// delays, reorders and drops, by clocks that run too fast or too slow.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "route/membership.h"
#include "route/virtual_time_fixture.h"
#include "server/lease_keeper.h"

namespace headrace {

class SimRegistry {
 public:
  static constexpr double kTtl = 6;

  SimRegistry(VirtualTime& time, Rng& rng) : time_(time), rng_(rng) { history_[1] = {}; }

  bool lost() const { return lost_; }
  // Nobody is answered. Behind it leases live as long as new ones, as etcd's do behind an election.
  void lose() { lost_ = true; }
  void come_back() {
    lost_ = false;
    for (auto& [id, lease] : leases_) extend(id);
  }

  std::string grant() {
    const std::string id = std::to_string(++last_lease_);
    extend(id);
    return id;
  }
  bool keep(const std::string& lease) {
    if (!leases_.contains(lease)) return false;
    extend(lease);
    return true;
  }
  bool put(const std::string& host, const std::string& lease) {
    if (!leases_.contains(lease)) return false;
    entries_[{host, lease}] = revision_ + 1;
    change();
    return true;
  }

  // As it is, or as a replica knows it that lags.
  MemberListing listing() {
    auto found = std::prev(history_.end());
    for (uint64_t back = rng_.below(4) == 0 ? rng_.below(6) : 0; back > 0; --back) {
      if (found != history_.begin()) --found;
    }
    MemberListing listing{.source = 1, .revision = found->first, .members = {}};
    for (const auto& [entry, life] : found->second) {
      listing.members.push_back(
          {{.tls = false, .host = entry.first, .port = "1", .path = "/"}, life});
    }
    return listing;
  }

 private:
  using Entries = std::map<std::pair<std::string, std::string>, int64_t>;  // host, lease: life

  void extend(const std::string& id) {
    leases_[id] = time_.now() + kTtl;
    time_.after(kTtl + 1e-6, [this, id] { expire(id); });
  }
  void expire(const std::string& id) {
    const auto lease = leases_.find(id);
    if (lost_ || lease == leases_.end() || lease->second > time_.now()) return;
    leases_.erase(lease);
    if (std::erase_if(entries_, [&](const auto& each) { return each.first.second == id; }) > 0) {
      change();
    }
  }
  void change() {
    history_[++revision_] = entries_;
    if (history_.size() > 8) history_.erase(history_.begin());
  }

  VirtualTime& time_;
  Rng& rng_;
  bool lost_ = false;
  int64_t revision_ = 1, last_lease_ = 0;
  std::map<std::string, double> leases_;  // until when
  Entries entries_;
  std::map<int64_t, Entries> history_;
};

// Messages to the registry and back. Dropped: nothing comes.
class SimRegistryLink {
 public:
  SimRegistryLink(VirtualTime& time, Rng& rng, SimRegistry& registry)
      : time_(time), rng_(rng), registry_(registry) {}

  // ask() at the registry, then `answered` here, unless one of both is lost; then, and late,
  // `unanswered`.
  template <class Ask>
  void exchange(Ask ask, std::function<void()> unanswered) {
    time_.after(delay(), [this, ask = std::move(ask), unanswered = std::move(unanswered)] {
      if (registry_.lost() || drops()) return time_.after(3, unanswered);
      auto answered = ask();
      if (drops()) return time_.after(3, unanswered);
      time_.after(delay(), std::move(answered));
    });
  }

  void calm() { calm_ = true; }  // nothing is dropped or late any more

 private:
  bool drops() { return !calm_ && rng_.below(12) == 0; }
  double delay() {
    return !calm_ && rng_.below(6) == 0 ? 2 * rng_.uniform() : 0.02 * rng_.uniform();
  }

  VirtualTime& time_;
  Rng& rng_;
  SimRegistry& registry_;
  bool calm_ = false;
};

// The entry of one life of a worker.
class SimEntry : public std::enable_shared_from_this<SimEntry> {
 public:
  SimEntry(VirtualTime& time, SimRegistry& registry, SimRegistryLink& link, std::string host,
           double clock_rate, std::function<bool()> runs)
      : time_(time),
        registry_(registry),
        link_(link),
        host_(std::move(host)),
        clock_rate_(clock_rate),
        runs_(std::move(runs)) {}

  void end() { over_ = true; }
  void go_on() {
    time_.after(keeper_.wait_seconds() * clock_rate_, [self = shared_from_this()] { self->ask(); });
  }

 private:
  using Ask = LeaseKeeper::Ask;
  void ask() {
    if (over_) return;
    if (!runs_()) return time_.after(0.1, [self = shared_from_this()] { self->ask(); });
    link_.exchange(
        [self = shared_from_this()]() -> std::function<void()> { return self->at_registry(); },
        [self = shared_from_this()] {
          self->keeper_.on_failed();
          self->go_on();
        });
  }
  std::function<void()> at_registry() {
    const Ask asked = keeper_.ask();
    std::string lease;
    bool known = true;
    if (asked == Ask::kGrant) lease = registry_.grant();
    if (asked == Ask::kPut) known = registry_.put(host_, keeper_.lease());
    if (asked == Ask::kKeepAlive) known = registry_.keep(keeper_.lease());
    return [self = shared_from_this(), asked, lease, known] {
      LeaseKeeper& keeper = self->keeper_;
      if (!known) {
        keeper.on_expired();
      } else if (asked == Ask::kGrant) {
        keeper.on_granted(lease);
      } else {
        asked == Ask::kPut ? keeper.on_put() : keeper.on_kept();
      }
      self->go_on();
    };
  }

  VirtualTime& time_;
  SimRegistry& registry_;
  SimRegistryLink& link_;
  const std::string host_;
  const double clock_rate_;
  const std::function<bool()> runs_;
  LeaseKeeper keeper_{SimRegistry::kTtl};
  bool over_ = false;
};

}  // namespace headrace
