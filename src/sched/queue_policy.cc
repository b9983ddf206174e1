#include "sched/queue_policy.h"

#include <array>

#include <fmt/format.h>

#include "sched/fcfs_policy.h"
#include "sched/one_at_a_time_policy.h"
#include "sched/static_policy.h"

namespace headrace {
namespace {

struct PolicyRow {
  std::string_view name;
  std::unique_ptr<QueuePolicy> (*create)();
};

template <class Policy>
std::unique_ptr<QueuePolicy> make() {
  return std::make_unique<Policy>();
}

constexpr std::array kPolicies = {
    PolicyRow{"fcfs", make<FcfsPolicy>},
    PolicyRow{"one-at-a-time", make<OneAtATimePolicy>},
    PolicyRow{"static", make<StaticPolicy>},
};

}  // namespace

Result<std::unique_ptr<QueuePolicy>> create_queue_policy(std::string_view name) {
  for (const PolicyRow& row : kPolicies) {
    if (row.name == name) return row.create();
  }
  return invalid_argument(
      fmt::format("there is no policy \"{}\"; there are {}", name, queue_policy_names()), "policy");
}

std::string queue_policy_names() {
  std::string names;
  for (const PolicyRow& row : kPolicies) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace headrace
