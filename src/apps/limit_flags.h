// The flags of what a server's clients may take.
#pragma once

#include "cli/command_line.h"
#include "sched/scheduler.h"
#include "server/api_keys.h"
#include "server/server_limits.h"

namespace headrace {

void add_queue_limit_flags(CLI::App& app, SchedulerOptions& scheduler, RequestLimits& requests);
// Of keys that name none.
void add_key_limit_flags(CLI::App& app, KeyLimits& limits);
void add_size_limit_flags(CLI::App& app, HttpLimits& http, RequestLimits& requests);

}  // namespace headrace
