// DeviceSampler: the Sampler of a GPU. It makes the parameters of each row of logits as the device
// reads them, and turns the results that come back into a StepResult.
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
#include "ops/sampling/device_sample.h"
#include "sched/step_plan.h"
#include "tensor/arena_places.h"

namespace headrace {

// Where the results of a step lie, on the device and on the host alike.
struct SampleResultParts {
  ArenaPart<DeviceSampleResult> rows;
  ArenaPart<DeviceTopLogprob> tops;

  static SampleResultParts place(ArenaPlaces& places, int64_t rows, int64_t tops) {
    SampleResultParts parts;
    parts.rows = places.take<DeviceSampleResult>(static_cast<size_t>(rows));
    parts.tops = places.take<DeviceTopLogprob>(static_cast<size_t>(tops));
    return parts;
  }
};

// SampleResults: the memory that steps write their results to. On the device all steps share one
// buffer, which the stream's order protects; on the host each step in flight has its own.
class SampleResults {
 public:
  static Result<SampleResults> create(Device& device, int steps, int64_t rows, int64_t tops);

  bool fits(int64_t rows, int64_t tops) const;
  // Makes room for a step. Memory is allocated only where the step is larger than was planned at
  // start, after all work on the stream; addresses then change.
  Status reserve(Stream& stream, int step, int64_t rows, int64_t tops);
  void copy_out(Stream& stream, int step);

  // Where the device writes the results of a step of so many rows.
  DeviceSampleResult* rows() const { return SampleResultParts().rows.in(device_.data()); }
  DeviceTopLogprob* tops(int64_t row_count) const;
  // The results of a step on the host. REQUIRES: the copy has ended
  std::span<const DeviceSampleResult> host_rows(int step) const;
  const DeviceTopLogprob* host_tops(int step) const;

 private:
  struct Step {
    Buffer host;
    SampleResultParts parts;
    int64_t used = 0;  // bytes
  };
  SampleResults(Device& device) : allocator_(&device) {}
  Status allocate(int64_t bytes);
  const Step& step_at(int step) const { return steps_[static_cast<size_t>(step)]; }

  Device* allocator_;
  Buffer device_;
  std::vector<Step> steps_;
};

class DeviceSampler {
 public:
  DeviceSampler(std::vector<TokenId> end_ids, int32_t vocab_size, int32_t slot_count)
      : end_ids_(std::move(end_ids)),
        vocab_size_(vocab_size),
        drawn_(static_cast<size_t>(slot_count)) {}

  // Writes the parameters of each of `rows` into `out`, in their order.
  void build(std::span<const LogitRow> rows, const SlotTable& slots,
             std::vector<DeviceSampleRow>& out);
  std::span<const DeviceLogitBias> biases() const { return biases_; }
  int64_t top_count() const { return top_count_; }
  int32_t mask_count() const { return mask_count_; }  // rows whose answer has a form
  bool penalises() const { return penalises_; }

  // The parameters of a row of padding, whose result is not read.
  static DeviceSampleRow padding(SlotId slot);

  // Turns the results of `logit_rows` into one Row for each sequence. `dead_ends`: of the masks,
  // which allow nothing. REQUIRES: the rows of a sequence are consecutive
  static StepResult collect(std::span<const LogitRow> logit_rows,
                            std::span<const DeviceSampleRow> rows,
                            std::span<const DeviceSampleResult> results,
                            const DeviceTopLogprob* tops, const std::vector<bool>& dead_ends);

 private:
  // What all sampled rows of a sequence have in common, made when its first row is sampled.
  struct Drawn {
    SequenceId sequence;
    uint64_t stream = 0;       // counter_stream()
    int32_t biased_until = 0;  // from this length on there are no biases
    DeviceSampleRow row;
  };
  DeviceSampleRow common_row(const LogitRow& row, const Slot& slot) const;
  Drawn& drawn(const LogitRow& row, const Slot& slot);
  void add_biases(const Slot& slot, int32_t length /* of the sequence */, DeviceSampleRow& row);

  const std::vector<TokenId> end_ids_;
  const int32_t vocab_size_;
  std::vector<Drawn> drawn_;  // [slots]
  std::vector<DeviceLogitBias> biases_;
  int64_t top_count_ = 0;
  int32_t mask_count_ = 0;
  bool penalises_ = false;
};

}  // namespace headrace
