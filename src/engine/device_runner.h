// DeviceRunner: the ModelRunner of a GPU. A step is a handful of copies and launches on one stream
// that nobody waits for: tokens that a step samples stay on the device, where the next step reads
// them, and the host learns of them from a copy behind an event.
#pragma once

#include "engine/model_runner.h"
#include "engine/rank_seat.h"
#include "engine/stage_seat.h"

namespace headrace {

// That of one stage of a model whose layers are shared out (staged_device_runner.h).
class DeviceStage : public Runner {
 public:
  // In place of wait(), where the stage does not sample: what the last one drew in this step.
  virtual Status settle(Ticket ticket, const StepResult& result) = 0;
  // What has failed in it, if anything has.
  virtual Status status() const = 0;
};

// On the thread that uses the runner. Of ranks, each at once.
Result<std::unique_ptr<Runner>> create_device_runner(Device& device, const Model& model,
                                                     KvStorage storage, ModelRunnerOptions options,
                                                     RankLink link = {});
// The neighbours outlive the runner.
Result<std::unique_ptr<DeviceStage>> create_device_stage(Device& device, const Model& model,
                                                         KvStorage storage,
                                                         ModelRunnerOptions options,
                                                         const StageSeat& stage);
// What model_runner_bytes() is for this kind of device, but for rows that come from other stages.
int64_t device_runner_bytes(const Device& device, const Model& model, const KvPlan& plan,
                            const ModelRunnerOptions& options);

// What model_recording_bytes() is for this kind of device.
int64_t device_recording_bytes(const Model& model, const ModelRunnerOptions& options);

}  // namespace headrace
