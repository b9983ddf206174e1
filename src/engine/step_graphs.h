// StepGraphs: recordings of steps that only decode, one for each padded number of rows, and more
// for steps some rows of which have adapters, or verify proposals. They are made on a thread of
// their own while steps go on; a step whose recording is not there yet runs as it is. A size is
// recorded only after it has run once on the device (kernels are then loaded and algorithms
// chosen).
#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace headrace {

// The time that a step of so many rows of padding takes on the device.
struct PaddedStepCost {
  int32_t rows = 0;
  double seconds = 0;
};

// What steps have in common that a recording is of.
struct RecordedSize {
  int32_t rows = 0;
  bool adapters = false;   // of some rows
  bool rows_meet = false;  // AttentionPlan::rows_meet
  friend auto operator<=>(const RecordedSize&, const RecordedSize&) = default;
};

class StepGraphs {
 public:
  struct Recording {
    std::unique_ptr<Graph> forward, sample;
    TensorView hidden;  // [rows, D], which the first computes and the second reads
  };
  // Records both stages of a step of such a size. On the recorder's thread; a Graph of it is
  // launched by the owner's thread alone.
  using Record = std::function<Result<Recording>(RecordedSize size)>;

  // Numbers of rows that steps may be padded to: powers of two up to 8, then eights, from 64 on
  // sixteens, from 256 on 64s (a tile of products has 64 or 128 rows); the largest is rows_max.
  static std::vector<int32_t> sizes_up_to(int32_t rows_max);
  // The sizes among `costs` (by ascending rows) that are worth a recording: from the largest down,
  // a size is left out where the next larger one that is kept takes at most 1 % longer.
  static std::vector<int32_t> worthwhile_sizes(std::span<const PaddedStepCost> costs);

  // `sizes` ascending. `record` is called until the destructor returns.
  StepGraphs(std::vector<int32_t> sizes, Record record);
  ~StepGraphs();

  // All that follows is called on the owner's thread.
  //
  // The size that `rows` rows are padded to; 0: no size is as large.
  int32_t padded_rows(int32_t rows) const;
  const std::vector<int32_t>& sizes() const { return sizes_; }
  void set_sizes(std::vector<int32_t> sizes) { sizes_ = std::move(sizes); }
  // Says that a step of that size has run: its recording is then made, once.
  void has_run(RecordedSize size);
  bool was_run(RecordedSize size) const { return state_.contains(size); }
  // The recording of a size, valid until clear(); nullptr: it is not made (yet).
  const Recording* find(RecordedSize size);

  // Addresses have changed: all recordings go, and are made again when their sizes have run. Waits
  // for the one that is being made. REQUIRES: no replay is running
  void clear();
  // Waits until every recording that was asked for is made, or has failed.
  void wait();
  int recorded() const;

 private:
  void run();

  const Record record_;
  std::vector<int32_t> sizes_;
  // The owner's, by each size that has run; nullptr: its recording was not seen yet.
  std::map<RecordedSize, const Recording*> state_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<RecordedSize> wanted_;
  std::map<RecordedSize, Recording> recordings_;
  bool recording_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace headrace
