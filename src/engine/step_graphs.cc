#include "engine/step_graphs.h"

#include <algorithm>

#include "base/log.h"

namespace headrace {
namespace {

constexpr double kCostSlack = 1.01;

}  // namespace

std::vector<int32_t> StepGraphs::sizes_up_to(int32_t rows_max) {
  std::vector<int32_t> sizes;
  for (int32_t rows = 1; rows <= rows_max;) {
    sizes.push_back(rows);
    rows += rows < 8 ? rows : rows < 64 ? 8 : rows < 256 ? 16 : 64;
  }
  if (!sizes.empty() && sizes.back() != rows_max) sizes.push_back(rows_max);
  return sizes;
}

std::vector<int32_t> StepGraphs::worthwhile_sizes(std::span<const PaddedStepCost> costs) {
  std::vector<int32_t> sizes;
  double kept = 0;
  for (size_t i = costs.size(); i-- > 0;) {
    if (!sizes.empty() && kept <= kCostSlack * costs[i].seconds) continue;
    sizes.push_back(costs[i].rows);
    kept = costs[i].seconds;
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

StepGraphs::StepGraphs(std::vector<int32_t> sizes, Record record)
    : record_(std::move(record)), sizes_(std::move(sizes)), thread_([this] { run(); }) {}

StepGraphs::~StepGraphs() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

int32_t StepGraphs::padded_rows(int32_t rows) const {
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), rows);
  return found == sizes_.end() ? 0 : *found;
}

void StepGraphs::has_run(RecordedSize size) {
  if (!state_.try_emplace(size, nullptr).second) return;
  {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(size);
  }
  wake_.notify_one();
}

const StepGraphs::Recording* StepGraphs::find(RecordedSize size) {
  const auto found = state_.find(size);
  if (found == state_.end()) return nullptr;
  if (found->second == nullptr) {
    const std::lock_guard lock(mutex_);
    const auto recorded = recordings_.find(size);
    if (recorded != recordings_.end()) found->second = &recorded->second;
  }
  return found->second;
}

void StepGraphs::clear() {
  std::unique_lock lock(mutex_);
  wanted_.clear();
  done_.wait(lock, [&] { return !recording_; });
  recordings_.clear();
  state_.clear();
}

void StepGraphs::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !recording_ && wanted_.empty(); });
}

int StepGraphs::recorded() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(recordings_.size());
}

void StepGraphs::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !wanted_.empty(); });
    if (stopping_) return;
    const RecordedSize size = wanted_.front();
    wanted_.pop_front();
    recording_ = true;
    lock.unlock();
    Result<Recording> recording = record_(size);
    if (!recording.ok()) {
      log_warning("steps of {} rows are not recorded: {}", size.rows, recording.status().message());
    }
    lock.lock();
    if (recording.ok()) recordings_.emplace(size, std::move(*recording));
    recording_ = false;
    done_.notify_all();
  }
}

}  // namespace headrace
