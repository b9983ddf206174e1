// Where a step's time goes: on the host by phase, on the device by its own clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace headrace {

// What the engine thread does for a step, in order. Waiting for the device is no work.
enum class HostPhase {
  kCommands,  // new and cancelled requests
  kPlan,      // the scheduler decides
  kBuild,     // plan and slots -> what the device reads
  kUpload,    // the copy to the device is started
  kLaunch,    // kernels or graphs are started; on the CPU: they run
  kCollect,   // results -> tokens of sequences
  kApply,     // the scheduler learns of them
  kDeliver,   // sinks are called
};
inline constexpr std::array<std::string_view, 8> kHostPhaseNames = {
    "commands", "plan", "build", "upload", "launch", "collect", "apply", "deliver"};
inline constexpr size_t kHostPhaseCount = kHostPhaseNames.size();

// Totals in seconds, by phase.
class HostSeconds {
 public:
  double& operator[](HostPhase phase) { return seconds_[static_cast<size_t>(phase)]; }
  double operator[](HostPhase phase) const { return seconds_[static_cast<size_t>(phase)]; }
  double total() const { return std::accumulate(seconds_.begin(), seconds_.end(), 0.0); }

  friend HostSeconds operator-(HostSeconds a, const HostSeconds& b) {
    for (size_t i = 0; i < kHostPhaseCount; ++i) a.seconds_[i] -= b.seconds_[i];
    return a;
  }

 private:
  std::array<double, kHostPhaseCount> seconds_{};
};

// The times of one step as its Runner measured them. A runner that computes at once leaves all 0.
struct RunnerTiming {
  double build_seconds = 0, upload_seconds = 0, collect_seconds = 0;  // of the host
  double device_seconds = 0;  // first kernel to last, on the device's clock
  double gap_seconds = 0;     // from the last kernel of the step before to this one's first
};

}  // namespace headrace
