// The flags by which `serve` enters itself into etcd.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"
#include "server/etcd_registration.h"
#include "server/server.h"

namespace headrace {

struct EtcdFlags {
  std::string address, advertised;
  int64_t lease_seconds = 10;
};

void add_etcd_flags(CLI::App& app, EtcdFlags& flags);

// What goes into etcd, but for a port that is not known yet. Nothing: no etcd was named.
// kInvalidArgument: it is no address, or routers could not call the one that would be entered.
Result<std::optional<EtcdRegistrationOptions>> etcd_registration(const EtcdFlags& flags,
                                                                 const ServerOptions& server);

// Enters the server, which listens there, until the end of what is returned; nullptr: nowhere.
std::unique_ptr<EtcdRegistration> enter_etcd(std::optional<EtcdRegistrationOptions> registration,
                                             const std::string& host, uint16_t port);

}  // namespace headrace
