// Virtual token counter (Sheng et al., OSDI 2024): the tenant that was served least goes next.
// Service is counted in weighted tokens: 1 for a prompt token, 2 for an output token. A tenant that
// had nothing to do is lifted to the least counter of the others less one request's worth, so that
// idleness earns no more than that. Slots are shared too: a tenant takes a slot of one that holds
// more and was served no less, and its prompts go before that tenant's.
//
// Bound: of two tenants that always have work waiting, the service differs by at most 2 U, U twice
// the tokens of a full batch (theorem 4.4 there). It holds because a tenant's counter with all that
// its running requests may still be served is never more than U over another's: it was at most the
// other's counter when the last of them joined. A tenant that comes back behind the others is
// lifted so far that this is true of it too.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sched/queue_policy.h"

namespace headrace {

class FairPolicy final : public QueuePolicy {
 public:
  static constexpr double kPromptWeight = 1, kOutputWeight = 2;
  // A tenant crowds where it got so many times an equal share of what was served lately.
  static constexpr double kCrowd = 1.5;
  // Service over which shares are measured: counts are halved when they reach it.
  static constexpr double kRecentService = 100000;
  // Tenants without work are forgotten when there are more.
  static constexpr size_t kTenantsMax = 4096;

  explicit FairPolicy(const SchedulerOptions& options)
      : credit_(kOutputWeight * options.max_model_len),
        ahead_max_(credit_ * options.max_num_seqs) {}
  Sequence* next(const StepView& view) override;
  bool served(Sequence& sequence, const Service& done) override;
  bool preempts(const Sequence& waiting, const Sequence& running, double) const override;
  double prompt_order(const Sequence& sequence) const override {
    return tenant_of(sequence).counter;
  }

  bool crowds(const Sequence& sequence) const override;
  void note(SequenceEvent event, Sequence& sequence) override;

  double service_of(const std::string& tenant) const;

 private:
  struct Tenant {
    std::string name;
    double counter = 0;
    double recent = 0;  // service, older halved again and again
    WaitingQueue queue;
    bool comes_back = false;   // a request waits again, and the counter was not lifted yet
    int32_t open = 0;          // choices that have not ended
    uint64_t last_joined = 0;  // in the order in which sequences left the queues
    int32_t running() const { return open - static_cast<int32_t>(queue.size()); }
    // Of tenants with equal counters the one that joined longer ago comes first: else one that was
    // just displaced would displace its successor.
    bool comes_before(const Tenant& other) const {
      return std::pair(counter, last_joined) < std::pair(other.counter, other.last_joined);
    }
  };
  Tenant& tenant_of(const Sequence& sequence) {
    return tenants_[static_cast<size_t>(index_.at(sequence.id))];
  }
  const Tenant& tenant_of(const Sequence& sequence) const {
    return tenants_[static_cast<size_t>(index_.at(sequence.id))];
  }
  void arrived(const Sequence& sequence);
  void queued(Sequence& sequence);
  void dequeued(Sequence& sequence);
  void ended(const Sequence& sequence);
  int32_t find_or_add(const std::string& name);
  void lift_those_who_come_back(std::span<Sequence* const> running);
  void note_recent(Tenant& tenant, double service);
  void halve_recent();

  std::vector<Tenant> tenants_;
  bool anybody_comes_back_ = false;
  std::vector<int32_t> free_;
  std::unordered_map<std::string, int32_t> by_name_;
  std::unordered_map<SequenceId, int32_t> index_;  // of its tenant
  const double credit_;     // how far behind the others a tenant may come back: one request's worth
  const double ahead_max_;  // U above
  double last_counter_ = 0;  // of the tenant that was served last
  uint64_t joins_ = 0;
  double recent_ = 0;           // of all tenants
  int32_t recent_tenants_ = 0;  // with a part in it that counts
};

}  // namespace headrace
