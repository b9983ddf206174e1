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

// The longest answers of at most `most` tokens that n choices behind such a prompt, or so many
// beams (0: no search), can all have when the request runs alone: what a request that names no
// length gets. At least 1.
int32_t answer_tokens_max(const SchedulerOptions& options, int64_t prompt_tokens, int32_t n,
                          int32_t beams, int32_t most);

// Pages that the request needs when it runs alone with all its choices.
int64_t pages_for_request(const SchedulerOptions& options, const Request& request);

}  // namespace headrace
