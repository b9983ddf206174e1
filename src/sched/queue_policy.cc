#include "sched/queue_policy.h"

#include <array>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sched/deadline_policy.h"
#include "sched/fair_policy.h"
#include "sched/fcfs_policy.h"
#include "sched/ljf_declared_policy.h"
#include "sched/lpm_policy.h"
#include "sched/mlfq_policy.h"
#include "sched/one_at_a_time_policy.h"
#include "sched/openppl_policy.h"
#include "sched/packed_policy.h"
#include "sched/phase_pure_policy.h"
#include "sched/prefill_first_policy.h"
#include "sched/priority_policy.h"
#include "sched/sjf_declared_policy.h"
#include "sched/sjf_policy.h"
#include "sched/srpt_policy.h"
#include "sched/static_policy.h"
#include "sched/waiting_ratio_policy.h"

namespace headrace {
namespace {

struct PolicyRow {
  std::string_view name;
  std::unique_ptr<QueuePolicy> (*create)(const SchedulerOptions&);
};

template <class Policy>
std::unique_ptr<QueuePolicy> make(const SchedulerOptions& options) {
  if constexpr (std::is_constructible_v<Policy, const SchedulerOptions&>) {
    return std::make_unique<Policy>(options);
  } else {
    return std::make_unique<Policy>();
  }
}

constexpr std::array kPolicies = {
    PolicyRow{"fcfs", make<FcfsPolicy>},
    PolicyRow{"one-at-a-time", make<OneAtATimePolicy>},
    PolicyRow{"static", make<StaticPolicy>},
    PolicyRow{"waiting-ratio", make<WaitingRatioPolicy>},
    PolicyRow{"openppl", make<OpenPplPolicy>},
    PolicyRow{"phase-pure", make<PhasePurePolicy>},
    PolicyRow{"prefill-first", make<PrefillFirstPolicy>},
    PolicyRow{"priority", make<PriorityPolicy>},
    PolicyRow{"lpm", make<LpmPolicy>},
    PolicyRow{"deadline", make<DeadlinePolicy>},
    PolicyRow{"mlfq", make<MlfqPolicy>},
    PolicyRow{"sjf-predicted", make<SjfPredictedPolicy>},
    PolicyRow{"sjf-declared", make<SjfDeclaredPolicy>},
    PolicyRow{"ljf-declared", make<LjfDeclaredPolicy>},
    PolicyRow{"srpt-declared", make<SrptDeclaredPolicy>},
    PolicyRow{"packed-predicted", make<PackedPredictedPolicy>},
    PolicyRow{"fair", make<FairPolicy>},
};

}  // namespace

Result<std::unique_ptr<QueuePolicy>> create_queue_policy(const SchedulerOptions& options) {
  for (const PolicyRow& row : kPolicies) {
    if (row.name == options.policy) return row.create(options);
  }
  return invalid_argument(fmt::format("there is no policy \"{}\"; there are {}", options.policy,
                                      fmt::join(queue_policy_names(), ", ")),
                          "policy");
}

std::vector<std::string> queue_policy_names() {
  std::vector<std::string> names;
  for (const PolicyRow& row : kPolicies) names.emplace_back(row.name);
  return names;
}

}  // namespace headrace
