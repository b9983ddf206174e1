// Continuous batching (Orca, OSDI 2022): requests join and leave at every step, first come first
// served.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class FcfsPolicy final : public QueuePolicy {};

}  // namespace headrace
