#include "bench/machine_ceilings.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "base/clock.h"
#include "bench/workload.h"

namespace headrace {
namespace {

// Long enough for clocks and the scheduler's noise to settle.
constexpr double kRunSeconds = 0.1;
constexpr int64_t kRounds = 2'000'000;

// Median seconds of `work` on all threads, after one run that is not counted.
template <class Work>
double median_seconds(Device& device, int repetitions, const Work& work) {
  const SystemClock clock;
  std::atomic<double> used{0};  // so that no work is left out
  std::vector<double> values;
  for (int i = -1; i < repetitions; ++i) {
    const int64_t start = clock.now_ns();
    device.pool().run([&](int thread) { used = static_cast<double>(work(thread)); });
    if (i >= 0) values.push_back(static_cast<double>(clock.now_ns() - start) * 1e-9);
  }
  return percentile(values, 0.5);
}

}  // namespace

Result<double> read_rate(Device& device, int64_t bytes, int repetitions) {
  const int threads = device.pool().thread_count();
  const int64_t share = std::max<int64_t>(bytes / threads / 1024 * 1024, 1024);
  HR_ASSIGN_OR_RETURN(const Buffer buffer, device.allocate(share * threads));
  const auto part = [&](int thread) {
    return std::span(buffer.data() + thread * share, static_cast<size_t>(share));
  };
  // Touched by the thread that will read it.
  device.pool().run([&](int thread) { std::ranges::fill(part(thread), std::byte{1}); });
  const CpuFeatures& cpu = device.traits().cpu;
  const double once =
      median_seconds(device, repetitions, [&](int thread) { return read_all(cpu, part(thread)); });
  const auto times = std::max<int64_t>(static_cast<int64_t>(kRunSeconds / once), 1);
  const double all = median_seconds(device, repetitions, [&](int thread) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < times; ++i) sum += read_all(cpu, part(thread));
    return sum;
  });
  return static_cast<double>(share * threads * times) / all;
}

double multiply_rate(Device& device, const ArithmeticCeiling& ceiling, int repetitions) {
  const double all = median_seconds(device, repetitions, [&](int) { return ceiling.run(kRounds); });
  return static_cast<double>(ceiling.operations_per_round * kRounds *
                             device.pool().thread_count()) /
         all;
}

const ArithmeticCeiling* ceiling_for(const Device& device, std::string_view type) {
  for (const ArithmeticCeiling& ceiling : arithmetic_ceilings()) {
    if (ceiling.type == type && ceiling.supports(device.traits().cpu)) return &ceiling;
  }
  return nullptr;
}

}  // namespace headrace
