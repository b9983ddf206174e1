// A server's entry in etcd: its address under a key that lives as long as its lease, which it keeps
// alive. A server that is stopped or cut off loses the lease, and enters again when it is back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/etcd_api.h"

namespace headrace {

struct EtcdRegistrationOptions {
  EtcdAddress etcd;
  std::string advertised;  // HOST:PORT that routers call
  int64_t ttl_seconds = 10;
};

// A thread of its own, until the end, which takes the entry away.
class EtcdRegistration {
 public:
  static std::unique_ptr<EtcdRegistration> start(EtcdRegistrationOptions options);
  virtual ~EtcdRegistration() = default;
};

}  // namespace headrace
