// The workers that one source names, a name of DNS or a prefix of etcd, and what that does to the
// table. No sockets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "route/worker_table.h"
#include "server/etcd_api.h"

namespace headrace {

// One thread at a time. Several sources may name the same worker: who brought it takes it away.
class Membership {
 public:
  explicit Membership(WorkerTable& table) : table_(table) {}

  enum class Applied : uint8_t {
    kNow,
    kOlder,  // than one before: answers overtake each other, or one came from a replica that lags
  };
  // A worker that is not named any more ends what it has and gets no more; one that has begun anew
  // has lost its cache. A listing of nobody is taken for a loss of the source: it takes away only
  // who does not answer either.
  Applied apply(const MemberListing& listing);

  size_t size() const { return members_.size(); }

 private:
  struct Member {
    int id = 0;  // in the table
    int64_t life = 0;
    bool own = false;  // it came by this source
  };
  using Address = std::pair<std::string, std::string>;  // host, port

  void take(const MemberListing::Member& member);
  bool is_kept(const Member& member, bool nobody_is_named) const;

  WorkerTable& table_;
  std::map<Address, Member> members_;
  uint64_t source_ = 0;
  int64_t revision_ = 0;
};

}  // namespace headrace
