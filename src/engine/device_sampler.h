// DeviceSampler: the Sampler of a GPU. It writes each row's parameters into the step's arena,
// starts the sampling of ranges of rows, and turns what came back into a StepResult.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/device_slots.h"
#include "engine/slot_table.h"
#include "engine/step_arena.h"
#include "ops/device_sample.h"
#include "sched/step_plan.h"

namespace headrace {

// Results of one step, on the device and as the host reads them.
class SampleResults {
 public:
  static Result<SampleResults> create(Device& device, int64_t rows, int64_t tops);

  // Room for this step. As StepArena::reserve().
  Status reserve(Stream& stream, int64_t rows, int64_t tops);
  void copy_out(Stream& stream);

  DeviceSampleResult* rows() const { return reinterpret_cast<DeviceSampleResult*>(device_.data()); }
  DeviceTopLogprob* tops() const {
    return reinterpret_cast<DeviceTopLogprob*>(device_.data() + tops_first_);
  }
  std::span<const DeviceSampleResult> host_rows() const;
  const DeviceTopLogprob* host_tops() const {
    return reinterpret_cast<const DeviceTopLogprob*>(host_.data() + tops_first_);
  }

 private:
  SampleResults(Device& device) : allocator_(&device) {}
  Status allocate(int64_t bytes);

  Device* allocator_;
  Buffer device_, host_;
  int64_t tops_first_ = 0;  // bytes
  int64_t row_count_ = 0;
  int64_t used_ = 0;
};

class DeviceSampler {
 public:
  DeviceSampler(std::vector<TokenId> end_ids, int32_t vocab_size)
      : end_ids_(std::move(end_ids)), vocab_size_(vocab_size) {}

  // The rows of a step as the device reads them; in the order of `rows`.
  void build(std::span<const LogitRow> rows, const SlotTable& slots);
  std::span<const DeviceSampleRow> rows() const { return rows_; }
  std::span<const DeviceLogitBias> biases() const { return biases_; }
  int64_t top_count() const { return top_count_; }
  bool penalises() const { return penalises_; }

  // What the results say of `logit_rows`; one Row a sequence, whose rows are consecutive.
  static StepResult collect(std::span<const LogitRow> logit_rows,
                            std::span<const DeviceSampleRow> rows, const SampleResults& results);

 private:
  void add_row(const LogitRow& row, const Slot& slot);
  void add_biases(const Slot& slot, DeviceSampleRow& row);

  const std::vector<TokenId> end_ids_;
  const int32_t vocab_size_;
  std::vector<DeviceSampleRow> rows_;
  std::vector<DeviceLogitBias> biases_;
  int64_t top_count_ = 0;
  bool penalises_ = false;
};

}  // namespace headrace
