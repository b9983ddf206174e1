#include "sched/fair_policy.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace headrace {

Sequence* FairPolicy::next(const StepView& view) {
  if (anybody_comes_back_) lift_those_who_come_back(view.running);
  const Tenant* least = nullptr;
  for (const Tenant& tenant : tenants_) {
    if (tenant.queue.empty()) continue;
    if (least == nullptr || tenant.comes_before(*least)) least = &tenant;
  }
  return least == nullptr ? nullptr : *least->queue.begin();
}

// The other tenant has no fewer than this one behind it. (With a beam its whole search gives way.)
bool FairPolicy::preempts(const Sequence& waiting, const Sequence& running, double) const {
  const Tenant& least = tenant_of(waiting);
  const Tenant& most = tenant_of(running);
  const int32_t leave = running.request->beams ? running.request->beams->width : 1;
  return least.running() + 1 <= most.running() - leave && least.counter <= most.counter;
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
  tenants_[static_cast<size_t>(found->second)] = {
      .name = name, .counter = 0, .recent = 0, .queue = {}};
  return found->second;
}

void FairPolicy::note(SequenceEvent event, Sequence& sequence) {
  switch (event) {
    case SequenceEvent::kArrived:
      return arrived(sequence);
    case SequenceEvent::kQueued:
      return queued(sequence);
    case SequenceEvent::kDequeued:
      return dequeued(sequence);
    case SequenceEvent::kEnded:
      return ended(sequence);
    case SequenceEvent::kForked:
    case SequenceEvent::kFinished:
      return;
  }
}

void FairPolicy::arrived(const Sequence& sequence) {
  const int32_t tenant = find_or_add(sequence.request->tenant);
  index_[sequence.id] = tenant;
  ++tenants_[static_cast<size_t>(tenant)].open;
}

void FairPolicy::queued(Sequence& sequence) {
  Tenant& tenant = tenant_of(sequence);
  if (tenant.queue.empty()) tenant.comes_back = anybody_comes_back_ = true;
  tenant.queue.insert(&sequence);
}

void FairPolicy::lift_those_who_come_back(std::span<Sequence* const> running) {
  anybody_comes_back_ = false;
  std::vector<double> with_rest(tenants_.size());  // counters, with what runs served to its end
  for (size_t i = 0; i < tenants_.size(); ++i) with_rest[i] = tenants_[i].counter;
  for (const Sequence* each : running) {
    const SamplingParams& sampling = each->request->sampling;
    const int32_t prompt = std::max(0, each->prompt_length() - each->computed_max);
    const int32_t outputs = sampling.max_tokens - static_cast<int32_t>(each->output.size());
    // Choices that start with it are served from then on.
    const auto choices = 1.0 + static_cast<double>(each->followers.size());
    with_rest[static_cast<size_t>(index_.at(each->id))] +=
        kPromptWeight * prompt + kOutputWeight * std::max(0, outputs) * choices;
  }
  for (Tenant& tenant : tenants_) {
    if (!std::exchange(tenant.comes_back, false) || tenant.queue.empty()) continue;
    std::optional<double> least;
    double least_allowed = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < tenants_.size(); ++i) {
      const Tenant& other = tenants_[i];
      if (&other == &tenant || other.queue.empty() || other.comes_back) continue;
      least = std::min(least.value_or(other.counter), other.counter);
      least_allowed = std::max(least_allowed, with_rest[i] - ahead_max_);
    }
    const double credited = std::max(least.value_or(last_counter_) - credit_, least_allowed);
    const double lifted = std::max(tenant.counter, credited);
    with_rest[static_cast<size_t>(&tenant - tenants_.data())] += lifted - tenant.counter;
    tenant.counter = lifted;
  }
}

void FairPolicy::dequeued(Sequence& sequence) {
  Tenant& tenant = tenant_of(sequence);
  tenant.queue.erase(&sequence);
  tenant.last_joined = ++joins_;
  last_counter_ = tenant.counter;
}

bool FairPolicy::served(Sequence& sequence, const Service& done) {
  const int32_t prompt_tokens = done.prompt_tokens, output_tokens = done.output_tokens;
  const double service = kPromptWeight * prompt_tokens + kOutputWeight * output_tokens;
  Tenant& tenant = tenant_of(sequence);
  tenant.counter += service;
  note_recent(tenant, service);
  return false;
}

void FairPolicy::note_recent(Tenant& tenant, double service) {
  if (tenant.recent == 0 && service > 0) ++recent_tenants_;
  tenant.recent += service;
  recent_ += service;
  if (recent_ >= kRecentService) halve_recent();
  rules_.may_crowd = recent_tenants_ >= 2;
}

void FairPolicy::halve_recent() {
  constexpr double kCounts = 0.001;  // of all
  recent_ = 0;
  recent_tenants_ = 0;
  for (Tenant& each : tenants_) {
    each.recent = each.recent < kCounts * kRecentService ? 0 : each.recent / 2;
    recent_ += each.recent;
    recent_tenants_ += each.recent > 0 ? 1 : 0;
  }
}

bool FairPolicy::crowds(const Sequence& sequence) const {
  if (!rules_.may_crowd || sequence.rank.background) return false;
  const Tenant& tenant = tenant_of(sequence);
  return tenant.recent * recent_tenants_ > kCrowd * recent_;
}

void FairPolicy::ended(const Sequence& sequence) {
  const int32_t index = index_.at(sequence.id);
  index_.erase(sequence.id);
  Tenant& tenant = tenants_[static_cast<size_t>(index)];
  if (--tenant.open > 0 || by_name_.size() <= kTenantsMax) return;
  by_name_.erase(tenant.name);
  recent_ -= tenant.recent;
  recent_tenants_ -= tenant.recent > 0 ? 1 : 0;
  rules_.may_crowd = recent_tenants_ >= 2;
  tenant = {};
  free_.push_back(index);
}

double FairPolicy::service_of(const std::string& tenant) const {
  const auto found = by_name_.find(tenant);
  return found == by_name_.end() ? 0 : tenants_[static_cast<size_t>(found->second)].counter;
}

}  // namespace headrace
