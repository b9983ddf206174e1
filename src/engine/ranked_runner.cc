#include "engine/ranked_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/device_runner.h"
#include "engine/page_parts.h"
#include "engine/rank_meeting.h"
#include "engine/rank_threads.h"
#include "ops/ranks/peer_ranks.h"

namespace headrace {
namespace {

class RankedRunner final : public Runner {
 public:
  RankedRunner(std::vector<Device*> devices, std::unique_ptr<PeerRanks> group)
      : devices_(std::move(devices)),
        group_(std::move(group)),
        meeting_(static_cast<int>(devices_.size())),
        runners_(devices_.size()),
        statuses_(devices_.size()),
        results_(devices_.size()),
        threads_(static_cast<int>(devices_.size())) {}
  // Each rank's own thread ends what it has begun.
  ~RankedRunner() override {
    on_ranks([&](size_t rank) { runners_[rank].reset(); });
  }

  // Everything that can fail or take long. Once, before all others.
  Status start(std::span<const ModelRank> ranks, std::vector<KvStorage> storages,
               const ModelRunnerOptions& options) {
    on_ranks([&](size_t rank) {
      ModelRunnerOptions own = options;
      if (rank > 0) own.taps.clear();
      auto runner = create_device_runner(
          *ranks[rank].device, *ranks[rank].model, std::move(storages[rank]), std::move(own),
          {.group = &group_->rank(static_cast<int>(rank)), .meeting = &meeting_});
      statuses_[rank] = runner.status();
      if (runner.ok()) {
        runners_[rank] = std::move(runner).value();
      } else {
        meeting_.leave();  // where the others try what pays
      }
    });
    for (const Status& status : statuses_) HR_RETURN_IF_ERROR(status);
    return ok_status();
  }

  Ticket submit_forward(const StepPlan& plan) override {
    Ticket ticket;
    on_ranks([&](size_t rank) {
      const Ticket own = runners_[rank]->submit_forward(plan);
      if (rank == 0) ticket = own;
    });
    return ticket;
  }
  // All ranks know it alike but for one that goes on no more.
  bool sample_needs_results(Ticket ticket) override {
    return std::ranges::any_of(
        runners_, [&](const auto& runner) { return runner->sample_needs_results(ticket); });
  }
  bool takes_constraints() const override { return runners_.front()->takes_constraints(); }
  void forget_requests() override {
    on_ranks([&](size_t rank) { runners_[rank]->forget_requests(); });
  }
  void submit_sample(Ticket ticket) override {
    on_ranks([&](size_t rank) { runners_[rank]->submit_sample(ticket); });
  }
  Result<StepResult> wait(Ticket ticket) override;
  bool idle_work() override {
    bool more = false;
    on_ranks([&](size_t rank) {
      const bool own = runners_[rank]->idle_work();
      if (rank == 0) more = own;
    });
    return more;
  }
  RunnerTiming timing() const override { return runners_.front()->timing(); }

  int64_t page_bytes() const override { return bytes_of_page(runners_); }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    return read_page_of(runners_, from, to);
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    return write_page_of(runners_, from, to);
  }

 private:
  // Of all ranks at once, each on its thread.
  template <class Work>
  void on_ranks(const Work& work) {
    threads_.run([&](int rank) {
      devices_[static_cast<size_t>(rank)]->make_current();
      work(static_cast<size_t>(rank));
    });
  }

  const std::vector<Device*> devices_;
  const std::unique_ptr<PeerRanks> group_;
  RankMeeting meeting_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<Status> statuses_;     // [ranks] of the call that runs
  std::vector<StepResult> results_;  // [ranks] of the step that is waited for
  RankThreads threads_;              // last: they end before what they use
};

// Makes `result` that of both ranks; false: they have drawn other tokens. A dead end of one is a
// dead end: a form may be too much work for the rank that asks first, and not for the next one,
// which finds what that has worked out.
bool join_draws(StepResult& result, StepResult& other) {
  if (result.rows.size() != other.rows.size()) return false;
  for (size_t i = 0; i < result.rows.size(); ++i) {
    StepResult::Row &row = result.rows[i], &others = other.rows[i];
    if (row.dead_end) continue;
    if (others.dead_end) {
      row = std::move(others);
    } else if (row.fault != others.fault ||
               !std::equal(row.accepted.begin(), row.accepted.end(), others.accepted.begin(),
                           others.accepted.end())) {
      return false;
    }
  }
  return true;
}

Result<StepResult> RankedRunner::wait(Ticket ticket) {
  on_ranks([&](size_t rank) {
    Result<StepResult> result = runners_[rank]->wait(ticket);
    statuses_[rank] = result.status();
    if (result.ok()) results_[rank] = std::move(result).value();
  });
  for (const Status& status : statuses_) HR_RETURN_IF_ERROR(status);
  for (size_t rank = 1; rank < results_.size(); ++rank) {
    if (join_draws(results_.front(), results_[rank])) continue;
    return internal_error(fmt::format(
        "rank {} has drawn other tokens than rank 0: their GPUs do not compute alike", rank));
  }
  return std::move(results_.front());
}

}  // namespace

Result<std::unique_ptr<Runner>> create_ranked_runner(std::span<const ModelRank> ranks,
                                                     std::vector<KvStorage> storages,
                                                     const ModelRunnerOptions& options) {
  std::vector<Device*> devices;
  for (const ModelRank& rank : ranks) devices.push_back(rank.device);
  HR_ASSIGN_OR_RETURN(auto group, PeerRanks::create(devices));
  auto runner = std::make_unique<RankedRunner>(std::move(devices), std::move(group));
  HR_RETURN_IF_ERROR(runner->start(ranks, std::move(storages), options));
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace headrace
