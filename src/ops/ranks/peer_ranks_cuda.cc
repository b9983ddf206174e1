// PeerRanks on CUDA: the memory of each rank, and who reaches it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "ops/ranks/peer_kernels.h"
#include "ops/ranks/peer_ranks.h"
#include "tensor/peer_access.h"

namespace headrace {
namespace {

constexpr int64_t kAccessBytes = 16;

bool starts_on(const std::byte* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

class CudaRank final : public Communicator {
 public:
  // Everything but the others' memory.
  static Result<CudaRank> create(Device& device, int rank, int size) {
    HR_ASSIGN_OR_RETURN(Buffer memory, device.allocate(PeerMemory{size}.bytes()));
    HR_ASSIGN_OR_RETURN(Buffer gave_up, device.allocate_host(sizeof(uint32_t)));
    CudaRank made(std::move(memory), std::move(gave_up), rank, size);
    const auto stream = device.create_stream();
    empty_inboxes(*stream, made.peers_);
    HR_RETURN_IF_ERROR(stream->synchronize());
    return made;
  }
  void meet(int rank, const CudaRank& other) { peers_.memory[rank] = other.memory_.data(); }
  void arrange(bool share_gpu, bool lets_next_start) {
    peers_.share_gpu = share_gpu;
    peers_.lets_next_start = lets_next_start;
  }

  int rank() const override { return peers_.rank; }
  int size() const override { return peers_.size; }

  Status status() const override {
    if (*static_cast<const volatile uint32_t*>(peers_.gave_up) == 0) return ok_status();
    return internal_error(
        fmt::format("rank {} of {} has waited for the others for {} s: a GPU or a link is gone",
                    rank(), size(), kPeerPatienceSeconds));
  }

  void all_reduce_sum(Stream& stream, TensorView data) override {
    const int64_t bytes = data.rows() * *row_bytes(data.dtype, data.columns());
    CHECK(data.rows() <= 1 || data.row_stride * data.rows() == bytes);
    CHECK_MSG(bytes % kAccessBytes == 0 && starts_on(data.data, kAccessBytes),
              "rows of ranks on GPUs are whole accesses of 16 bytes");
    for (int64_t first = 0; first < bytes; first += PeerMemory::kLargeBytes) {
      add_up(stream, peers_, data.dtype, data.data + first,
             std::min(bytes - first, PeerMemory::kLargeBytes));
    }
  }

  void all_gather(Stream& stream, TensorView data, std::span<const int64_t> starts) override {
    CHECK(std::ssize(starts) == size() + 1 && starts.back() <= data.columns());
    const int64_t access = access_of(data, starts);
    const int64_t element = dtype_info(data.dtype).block_bytes;
    PeerColumns columns{};
    int64_t widest = 1;
    for (size_t r = 0; r < starts.size(); ++r) {
      columns.starts[r] = starts[r] * element / access;
      if (r > 0) widest = std::max(widest, columns.starts[r] - columns.starts[r - 1]);
    }
    const int64_t rows_max = PeerMemory::kLargeBytes / (widest * access);
    CHECK(rows_max > 0);
    for (int64_t first = 0; first < data.rows(); first += rows_max) {
      gather_columns(stream, peers_, columns, static_cast<int>(access), data.row(first),
                     data.row_stride / access, std::min(rows_max, data.rows() - first));
    }
  }

  void gather(Stream&, TensorView, std::span<const int64_t>) override { refuse(); }
  void all_to_all(Stream&, ConstTensorView, TensorView) override { refuse(); }
  void send(Stream&, ConstTensorView, int) override { refuse(); }
  void receive(Stream&, TensorView, int) override { refuse(); }

 private:
  CudaRank(Buffer memory, Buffer gave_up, int rank, int size)
      : memory_(std::move(memory)),
        gave_up_(std::move(gave_up)),
        peers_{.memory = {},
               .gave_up = reinterpret_cast<uint32_t*>(gave_up_.data()),
               .rank = rank,
               .size = size,
               .share_gpu = false,
               .lets_next_start = false} {
    *peers_.gave_up = 0;
    peers_.memory[rank] = memory_.data();
  }

  [[noreturn]] static void refuse() {
    CHECK_MSG(false, "GPUs that are peers sum and gather");
    __builtin_unreachable();
  }

  // The widest access that all rows and columns start on.
  static int64_t access_of(const TensorView& data, std::span<const int64_t> starts) {
    const int64_t element = dtype_info(data.dtype).block_bytes;
    for (const int64_t access : {16, 4}) {
      const bool fits = std::all_of(starts.begin(), starts.end(),
                                    [&](int64_t start) { return start * element % access == 0; });
      if (fits && data.row_stride % access == 0 && starts_on(data.data, access)) return access;
    }
    return 2;
  }

  Buffer memory_;
  Buffer gave_up_;
  Peers peers_;
};

// A kernel that starts early holds room on its GPU until the collective before it has ended. So
// nothing may start early where the rank that is waited for is on the same GPU, and only one group
// of the process may let kernels do so: of two, each could hold the room that the other's ranks
// need, on another GPU.
class CudaPeerRanks final : public PeerRanks {
 public:
  CudaPeerRanks(std::vector<CudaRank> ranks, bool share_gpu)
      : ranks_(std::move(ranks)), lets_next_start_(!share_gpu && !one_group_lets.exchange(true)) {
    for (CudaRank& rank : ranks_) rank.arrange(share_gpu, lets_next_start_);
  }
  ~CudaPeerRanks() override {
    if (lets_next_start_) one_group_lets = false;
  }
  Communicator& rank(int rank) override { return ranks_[static_cast<size_t>(rank)]; }

 private:
  static inline std::atomic<bool> one_group_lets = false;

  std::vector<CudaRank> ranks_;
  const bool lets_next_start_;
};

Status reach(int from, int to) {
  HR_ASSIGN_OR_RETURN(const bool reached, reach_peer(from, to));
  if (reached) return ok_status();
  return unsupported(
      fmt::format("GPUs {} and {} do not reach each other's memory (no NVLink or PCIe peer "
                  "access): use --tensor-parallel-size 1, or GPUs that do (--device cuda:N,M)",
                  from, to),
      "tensor_parallel_size");
}

}  // namespace

Result<std::unique_ptr<PeerRanks>> create_cuda_peer_ranks(std::span<Device* const> devices) {
  const auto size = static_cast<int>(devices.size());
  std::vector<CudaRank> ranks;
  for (int r = 0; r < size; ++r) {
    Device& device = *devices[static_cast<size_t>(r)];
    device.make_current();
    HR_ASSIGN_OR_RETURN(CudaRank rank, CudaRank::create(device, r, size));
    ranks.push_back(std::move(rank));
  }
  bool share_gpu = false;
  for (int from = 0; from < size; ++from) {
    const int gpu = devices[static_cast<size_t>(from)]->traits().index;
    for (int to = 0; to < size; ++to) {
      const int other = devices[static_cast<size_t>(to)]->traits().index;
      if (gpu != other) HR_RETURN_IF_ERROR(reach(gpu, other));
      ranks[static_cast<size_t>(from)].meet(to, ranks[static_cast<size_t>(to)]);
      share_gpu = share_gpu || (from != to && gpu == other);
    }
  }
  devices.front()->make_current();
  return std::unique_ptr<PeerRanks>(std::make_unique<CudaPeerRanks>(std::move(ranks), share_gpu));
}

}  // namespace headrace
