// What is said to etcd and what it answers, by its JSON gateway (v3): a worker has a key under a
// prefix as long as its lease lives; routers list the prefix. No sockets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_channel.h"

namespace headrace {

inline constexpr std::string_view kEtcdRange = "/v3/kv/range";
inline constexpr std::string_view kEtcdPut = "/v3/kv/put";
inline constexpr std::string_view kEtcdGrant = "/v3/lease/grant";
inline constexpr std::string_view kEtcdKeepAlive = "/v3/lease/keepalive";
inline constexpr std::string_view kEtcdRevoke = "/v3/lease/revoke";

struct EtcdAddress {
  HttpTarget target;
  std::string prefix;  // of the keys; ends with '/'
  std::string text() const;
};
// HOST:PORT or HOST:PORT/PREFIX. kInvalidArgument for what is none of both.
Result<EtcdAddress> parse_etcd_address(std::string_view text);

// Who is a member now. Later ones of a source have higher revisions.
struct MemberListing {
  struct Member {
    HttpTarget target;
    int64_t life = 0;  // another one: it has begun anew; 0: the source does not say
  };
  uint64_t source = 0;   // another cluster, whose revisions are no continuation
  int64_t revision = 0;  // 0: what comes last is true
  std::vector<Member> members;
};

struct EtcdLease {
  std::string id;
  double ttl_seconds = 0;  // 0: it has expired
};

std::string etcd_range_body(std::string_view prefix);
std::string etcd_grant_body(int64_t ttl_seconds);
std::string etcd_lease_body(std::string_view lease);
std::string etcd_put_body(std::string_view key, std::string_view value, std::string_view lease);

// kCorrupt: it is no such answer. A key whose value is no address of a worker is left out.
Result<MemberListing> read_etcd_listing(std::string_view body);
// Of a grant and of a keep-alive.
Result<EtcdLease> read_etcd_lease(std::string_view body);

}  // namespace headrace
