// `serve --data-parallel-size N`: N replicas of the server and a router in front of them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "cli/command_line.h"
#include "server/server.h"
#include "stack/stack_options.h"

namespace headrace {

struct ReplicatedServe {
  int32_t count = 1;
  ServerOptions server;  // of which the router has the address, the keys and the bounds
  StackOptions stack;    // of each; GPUs, or CPUs, are shared out
  bool keys_in_arguments = false, has_batch = false, registers = false;
};

void add_replica_flag(CLI::App& app, int32_t& count);

// Serves until a signal ends it; its exit code. The replicas get this process's own arguments.
// kInvalidArgument for what only a single process can have.
Result<int> serve_replicas(const ReplicatedServe& options);

}  // namespace headrace
