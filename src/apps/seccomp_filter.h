// A filter of system calls (seccomp) for a server that is ready: it can go on serving, and not much
// else. Who takes over the process runs no program, opens no connection, traces no other process
// and makes no socket. Linux on x86-64.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"

namespace headrace {

struct AllowedCall {
  std::string_view name;
  int number;
};

// What a server that is ready may call. deploy/seccomp.json has these, and what a start needs.
std::span<const AllowedCall> calls_of_a_ready_server();

// From now on every thread of the process may make only those calls, and threads but no processes;
// all others fail with EPERM. It cannot be undone. kUnsupported where the kernel has no seccomp.
Status allow_only_serving();

}  // namespace headrace
