// PeerRanks: the ranks of a model on GPUs of one host that reach each other's memory. A collective
// is a kernel of our own on each rank's stream: it writes what the others need into their inboxes
// (over NVLink), waits for what they write into its own, and reads that. Nobody waits on the host,
// and what a kernel remembers from one collective to the next lies in device memory, so that a rank
// may replay a recorded step where another runs its kernels one by one.
//
// Sums are added up in the order of the ranks, element by element: the same bits on every rank,
// whatever the number of rows.
//
// Small sums are one trip: an element that has not come yet is told by a value that no rank sends
// (NCCL's LL, and TensorRT-LLM's "Lamport" kernels, do the same with flags and with negative zero).
// All else has a flag a thread block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "tensor/communicator.h"
#include "tensor/device.h"

namespace headrace {

inline constexpr int kPeerRanksMax = 8;

class PeerRanks {
 public:
  // What a rank takes of its GPU's memory.
  static int64_t bytes(int ranks);
  // One rank a device, in their order; the devices outlive the group. Two ranks may share a GPU (in
  // tests). kUnsupported naming two GPUs that do not reach each other's memory. Of null devices:
  // collectives that do nothing.
  static Result<std::unique_ptr<PeerRanks>> create(std::span<Device* const> devices);
  virtual ~PeerRanks() = default;

  // Each is used by one thread at a time, with streams of its rank's device; all_reduce_sum() and
  // all_gather() alone. A rank that waits for another longer than a minute gives up: status() says
  // so from then on.
  virtual Communicator& rank(int rank) = 0;
};

// The CUDA twin (peer_ranks_cuda.cu; ops/no_cuda.cc where the build has none).
Result<std::unique_ptr<PeerRanks>> create_cuda_peer_ranks(std::span<Device* const> devices);

}  // namespace headrace
