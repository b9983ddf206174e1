#include "sched/fair_policy.h"

#include <algorithm>

namespace headrace {

Sequence* FairPolicy::next(const StepView&) {
  const Tenant* least = nullptr;
  for (const Tenant& tenant : tenants_) {
    if (tenant.queue.empty()) continue;
    if (least == nullptr || tenant.comes_before(*least)) least = &tenant;
  }
  return least == nullptr ? nullptr : *least->queue.begin();
}

bool FairPolicy::preempts(const Sequence& waiting, const Sequence& running) const {
  const Tenant& least = tenants_[static_cast<size_t>(waiting.policy.tenant)];
  const Tenant& most = tenants_[static_cast<size_t>(running.policy.tenant)];
  return least.running() + 1 < most.running() && least.counter <= most.counter;
}

int32_t FairPolicy::find_or_add(const std::string& name) {
  const auto [found, fresh] = by_name_.try_emplace(name, 0);
  if (!fresh) return found->second;
  if (free_.empty()) {
    free_.push_back(static_cast<int32_t>(tenants_.size()));
    tenants_.emplace_back();
  }
  found->second = free_.back();
  free_.pop_back();
  tenants_[static_cast<size_t>(found->second)] = {.name = name, .counter = 0, .queue = {}};
  return found->second;
}

void FairPolicy::arrived(Sequence& sequence) {
  sequence.policy.tenant = find_or_add(sequence.request->tenant);
  ++tenants_[static_cast<size_t>(sequence.policy.tenant)].open;
}

void FairPolicy::queued(Sequence& sequence) {
  Tenant& tenant = tenants_[static_cast<size_t>(sequence.policy.tenant)];
  if (tenant.queue.empty()) {
    const Tenant* least = nullptr;
    for (const Tenant& other : tenants_) {
      if (other.queue.empty()) continue;
      if (least == nullptr || other.counter < least->counter) least = &other;
    }
    tenant.counter = std::max(tenant.counter, least != nullptr ? least->counter : last_counter_);
  }
  tenant.queue.insert(&sequence);
}

void FairPolicy::dequeued(Sequence& sequence) {
  Tenant& tenant = tenants_[static_cast<size_t>(sequence.policy.tenant)];
  tenant.queue.erase(&sequence);
  tenant.last_joined = ++joins_;
  last_counter_ = tenant.counter;
}

bool FairPolicy::served(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens) {
  tenants_[static_cast<size_t>(sequence.policy.tenant)].counter +=
      kPromptWeight * prompt_tokens + kOutputWeight * output_tokens;
  return false;
}

void FairPolicy::ended(const Sequence& sequence) {
  const int32_t index = sequence.policy.tenant;
  Tenant& tenant = tenants_[static_cast<size_t>(index)];
  if (--tenant.open > 0 || by_name_.size() <= kTenantsMax) return;
  by_name_.erase(tenant.name);
  tenant = {};
  free_.push_back(index);
}

double FairPolicy::service_of(const std::string& tenant) const {
  const auto found = by_name_.find(tenant);
  return found == by_name_.end() ? 0 : tenants_[static_cast<size_t>(found->second)].counter;
}

}  // namespace headrace
