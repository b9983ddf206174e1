// The kernels of PeerRanks on CUDA (peer_kernels.cu), and what they know of their group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/ranks/peer_memory.h"
#include "ops/ranks/peer_ranks.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace headrace {

inline constexpr uint64_t kPeerPatienceSeconds = 60;

// What a kernel knows of its group.
struct Peers {
  std::byte* memory[kPeerRanksMax];  // of each rank, as this one reaches it
  uint32_t* gave_up;                 // of this rank, on the host
  int rank, size;
  // Both are the same on all ranks, whose collectives have as many blocks as each other.
  bool share_gpu;        // two ranks are on one GPU
  bool lets_next_start;  // the next kernel may take its places while this one waits
};

// Columns [starts[r], starts[r + 1]) of rank r, in accesses.
struct PeerColumns {
  int64_t starts[kPeerRanksMax + 1];
};

// No inbox holds anything. Before the others are told of the memory.
void empty_inboxes(Stream& stream, const Peers& peers);
// data[i] = the sum over the ranks, of `bytes` bytes from 16-byte accesses; at most kLargeBytes.
void add_up(Stream& stream, const Peers& peers, DType dtype, std::byte* data, int64_t bytes);
// Every rank's columns of `rows` rows of accesses of 2, 4 or 16 bytes, rows `stride` accesses
// apart. The widest rank's are at most kLargeBytes.
void gather_columns(Stream& stream, const Peers& peers, const PeerColumns& columns,
                    int access_bytes, std::byte* data, int64_t stride, int64_t rows);

}  // namespace headrace
