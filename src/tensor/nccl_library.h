// Groups of GPUs: NCCL, opened at run time, so that the program starts without it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/status.h"
#include "tensor/communicator.h"
#include "tensor/device.h"

namespace headrace {

// Names one group to be. Plain bytes: whoever made it tells the other ranks, in other processes
// too.
struct NcclGroupId {
  std::array<char, 128> bytes;
};

// One rank of a group, used by one thread at a time. Its sums are the same bits on every rank; in
// which order they are added up is NCCL's choice, by size and by how the GPUs are linked. May be
// recorded in a graph. Leaving before the others have what they wait for ends their waiting with an
// error.
class NcclRank : public Communicator {};

// Threads: any.
class NcclLibrary {
 public:
  // One a process. kUnavailable naming the library and the places that were looked at.
  static Result<const NcclLibrary*> open();
  virtual ~NcclLibrary() = default;

  virtual int version() const = 0;  // 22703: 2.27.3
  virtual Result<NcclGroupId> new_group() const = 0;
  // Joins as rank `rank` of `size`, on the GPU that `stream` is of. Returns when all have joined,
  // so that each rank needs a thread of its own. REQUIRES: 0 <= rank < size, each rank once a group
  virtual Result<std::unique_ptr<NcclRank>> join(const NcclGroupId& group, int rank, int size,
                                                 Stream& stream) const = 0;
};

}  // namespace headrace
