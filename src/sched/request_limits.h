// What a scheduler's options and a request must satisfy before anything runs.
#pragma once

#include "base/status.h"
#include "sched/request.h"
#include "sched/scheduler.h"

namespace headrace {

// kInvalidArgument naming the option.
Status check_options(const SchedulerOptions& options);

// Whether the request can ever run. kInvalidArgument naming field and both numbers.
Status check_request(const SchedulerOptions& options, const Request& request);

// Pages that the request needs when it runs alone with all its choices.
int64_t pages_for_request(const SchedulerOptions& options, const Request& request);

}  // namespace headrace
