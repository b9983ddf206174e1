#include "engine/staged_device_runner.h"

#include <utility>

#include "engine/device_runner.h"
#include "engine/page_parts.h"
#include "engine/stage_rows.h"

namespace headrace {
namespace {

class StagedDeviceRunner final : public Runner {
 public:
  // Everything that can fail or take long. Once, before all others.
  Status start(std::span<const ModelRank> parts, std::vector<KvStorage> storages,
               const ModelRunnerOptions& options);

  Ticket submit_forward(const StepPlan& plan) override {
    Ticket ticket;
    for (const auto& stage : stages_) ticket = stage->submit_forward(plan);
    return ticket;
  }
  bool sample_needs_results(Ticket ticket) override { return last().sample_needs_results(ticket); }
  void submit_sample(Ticket ticket) override {
    for (const auto& stage : stages_) stage->submit_sample(ticket);
  }
  Result<StepResult> wait(Ticket ticket) override;
  bool idle_work() override {
    bool more = false;
    for (const auto& stage : stages_) more = stage->idle_work() || more;
    return more;
  }

  // Means over the stages: the bubble is the share of the gaps.
  RunnerTiming timing() const override { return timing_; }
  bool takes_constraints() const override { return true; }
  void forget_requests() override {
    for (const auto& stage : stages_) stage->forget_requests();
  }
  int64_t page_bytes() const override { return bytes_of_page(stages_); }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    return read_page_of(stages_, from, to);
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    return write_page_of(stages_, from, to);
  }

 private:
  DeviceStage& last() const { return *stages_.back(); }
  RunnerTiming mean_timing() const;

  std::vector<std::unique_ptr<StageRows>> rows_;  // [stages - 1] behind each but the last
  std::vector<std::unique_ptr<DeviceStage>> stages_;
  RunnerTiming timing_;  // of the step that was waited for last
};

Status StagedDeviceRunner::start(std::span<const ModelRank> parts, std::vector<KvStorage> storages,
                                 const ModelRunnerOptions& options) {
  for (size_t s = 0; s + 1 < parts.size(); ++s) {
    HR_ASSIGN_OR_RETURN(std::unique_ptr<StageRows> rows,
                        StageRows::create(*parts[s].device, *parts[s + 1].device, *parts[s].model,
                                          options.max_num_batched_tokens, options.steps_in_flight));
    rows_.push_back(std::move(rows));
  }
  for (size_t s = 0; s < parts.size(); ++s) {
    const StageSeat seat{.layers = parts[s].layers,
                         .before = s > 0 ? rows_[s - 1].get() : nullptr,
                         .behind = s + 1 < parts.size() ? rows_[s].get() : nullptr};
    parts[s].device->make_current();
    HR_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStage> stage,
                        create_device_stage(*parts[s].device, *parts[s].model,
                                            std::move(storages[s]), options, seat));
    stages_.push_back(std::move(stage));
  }
  return ok_status();
}

// The step has ended everywhere when it has on the last stage.
Result<StepResult> StagedDeviceRunner::wait(Ticket ticket) {
  Result<StepResult> waited = last().wait(ticket);
  // The first that failed knows why.
  for (size_t s = 0; !waited.ok() && s + 1 < stages_.size(); ++s) {
    HR_RETURN_IF_ERROR(stages_[s]->status());
  }
  HR_ASSIGN_OR_RETURN(StepResult result, std::move(waited));
  for (size_t s = 0; s + 1 < stages_.size(); ++s) {
    HR_RETURN_IF_ERROR(stages_[s]->settle(ticket, result));
  }
  timing_ = mean_timing();
  return result;
}

// What the host does for the stages adds up.
RunnerTiming StagedDeviceRunner::mean_timing() const {
  RunnerTiming mean;
  for (const auto& stage : stages_) {
    const RunnerTiming timing = stage->timing();
    mean.device_seconds += timing.device_seconds / static_cast<double>(stages_.size());
    mean.gap_seconds += timing.gap_seconds / static_cast<double>(stages_.size());
    mean.build_seconds += timing.build_seconds;
    mean.upload_seconds += timing.upload_seconds;
    mean.collect_seconds += timing.collect_seconds;
  }
  return mean;
}

}  // namespace

Result<std::unique_ptr<Runner>> create_staged_device_runner(std::span<const ModelRank> stages,
                                                            std::vector<KvStorage> storages,
                                                            const ModelRunnerOptions& options) {
  auto runner = std::make_unique<StagedDeviceRunner>();
  HR_RETURN_IF_ERROR(runner->start(stages, std::move(storages), options));
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace headrace
