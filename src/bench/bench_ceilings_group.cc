#include "bench/bench_ceilings_group.h"

#include <array>
#include <barrier>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "bench/workload.h"
#include "ops/ranks/peer_ranks.h"
#include "tensor/nccl_library.h"

namespace headrace {
namespace {

// A row of an 8B model's activations has 8 KiB: 1, 64 and 256 decodes, prompts of 2,048 and 8,192.
constexpr std::array<int64_t, 7> kBytes = {8 << 10, 64 << 10, 512 << 10, 1 << 20,
                                           2 << 20, 16 << 20, 64 << 20};
constexpr int kSumsRecorded = 50;  // the launch of a recording is a tenth of its time at most

// One rank: a thread that records and replays what all ranks do.
class GroupRank {
 public:
  GroupRank(Device& device, std::unique_ptr<Stream> stream, Buffer memory)
      : device_(device), stream_(std::move(stream)), memory_(std::move(memory)) {}

  static Result<std::unique_ptr<GroupRank>> create(Device& device) {
    HR_ASSIGN_OR_RETURN(Buffer memory, device.allocate(kBytes.back()));
    auto stream = device.create_stream();
    stream->fill_zero(memory.data(), memory.size());
    HR_RETURN_IF_ERROR(stream->synchronize());
    return std::make_unique<GroupRank>(device, std::move(stream), std::move(memory));
  }

  Status join(const NcclLibrary& library, const NcclGroupId& group, int rank, int size) {
    HR_ASSIGN_OR_RETURN(nccl_, library.join(group, rank, size, *stream_));
    return ok_status();
  }

  // Sums by NCCL, or by `peers`.
  void sum_by(Communicator* peers) { by_ = peers == nullptr ? nccl_.get() : peers; }

  // Every rank calls these in the same order.
  Status record(int64_t bytes) {
    device_.make_current();
    sum(bytes);  // buffers and links are made at the first sum of a size
    HR_RETURN_IF_ERROR(stream_->synchronize());
    HR_RETURN_IF_ERROR(stream_->begin_capture());
    for (int i = 0; i < kSumsRecorded; ++i) sum(bytes);
    HR_ASSIGN_OR_RETURN(graph_, stream_->end_capture());
    return by_->status();
  }
  Status run() {
    device_.make_current();
    stream_->launch(*graph_);
    HR_RETURN_IF_ERROR(stream_->synchronize());
    return by_->status();
  }
  Device& device() const { return device_; }

 private:
  void sum(int64_t bytes) {
    by_->all_reduce_sum(*stream_, TensorView(memory_.data(), DType::kBF16, Shape{bytes / 2}));
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Buffer memory_;
  std::unique_ptr<NcclRank> nccl_;
  Communicator* by_ = nullptr;
  std::unique_ptr<Graph> graph_;
};

// Runs `work(rank)` on a thread for each rank; the first error.
template <class Work>
Status on_all(std::vector<std::unique_ptr<GroupRank>>& ranks, const Work& work) {
  std::vector<Status> results(ranks.size(), ok_status());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = work(*ranks[i], static_cast<int>(i)); });
  }
  threads.clear();  // joins them
  for (const Status& result : results) HR_RETURN_IF_ERROR(result);
  return ok_status();
}

// Seconds of a sum of `bytes` bytes, the median.
Result<double> time_sums(std::vector<std::unique_ptr<GroupRank>>& ranks, int64_t bytes,
                         int repetitions) {
  const SystemClock clock;
  HR_RETURN_IF_ERROR(on_all(ranks, [&](GroupRank& rank, int) { return rank.record(bytes); }));
  std::vector<double> seconds;
  std::barrier together(std::ssize(ranks));
  HR_RETURN_IF_ERROR(on_all(ranks, [&](GroupRank& rank, int i) -> Status {
    Status status = ok_status();
    for (int run = 0; run <= repetitions; ++run) {
      together.arrive_and_wait();
      const double start = clock.now_seconds();
      if (status.ok()) status = rank.run();
      if (i == 0 && run > 0) seconds.push_back((clock.now_seconds() - start) / kSumsRecorded);
    }
    return status;
  }));
  return percentile(seconds, 0.5);
}

}  // namespace

Status measure_group_ceilings(Device& first, int repetitions,
                              const std::function<void(const CeilingRow&)>& print) {
  std::vector<std::unique_ptr<Device>> others;
  for (int index = 1;; ++index) {
    auto next = create_cuda_device(index, 1);
    if (!next.ok()) break;
    others.push_back(std::move(*next));
  }
  if (others.empty()) return ok_status();
  std::vector<std::unique_ptr<GroupRank>> ranks;
  HR_ASSIGN_OR_RETURN(auto rank, GroupRank::create(first));
  ranks.push_back(std::move(rank));
  for (const auto& device : others) {
    HR_ASSIGN_OR_RETURN(auto next, GroupRank::create(*device));
    ranks.push_back(std::move(next));
  }
  const auto size = static_cast<int>(ranks.size());
  HR_ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::open());
  HR_ASSIGN_OR_RETURN(const NcclGroupId group, library->new_group());
  HR_RETURN_IF_ERROR(
      on_all(ranks, [&](GroupRank& rank, int i) { return rank.join(*library, group, i, size); }));

  std::vector<Device*> devices;
  for (const auto& each : ranks) devices.push_back(&each->device());
  const auto peers = PeerRanks::create(devices);
  for (const int64_t bytes : kBytes) {
    for (const bool by_peers : {false, true}) {
      if (by_peers && !peers.ok()) continue;  // they do not reach each other's memory
      for (int i = 0; i < size; ++i) {
        ranks[static_cast<size_t>(i)]->sum_by(by_peers ? &(*peers)->rank(i) : nullptr);
      }
      HR_ASSIGN_OR_RETURN(const double seconds, time_sums(ranks, bytes, repetitions));
      print({by_peers ? "all_reduce, peers" : "all_reduce, NCCL",
             fmt::format("{} KiB x {}", bytes >> 10, size), seconds * 1e6, "us"});
    }
  }
  return ok_status();
}

}  // namespace headrace
