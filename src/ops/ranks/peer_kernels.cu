// Every rank launches the same collectives in the same order, each with as many
// blocks as the others: block b of one meets block b of the others.
//
// Small sums (up to 2 MB). An element lies in the inbox as it was sent; kNothing lies where none
// has come. Inboxes take turns: in turn t a rank writes into those of t, and empties its own of
// t - 1. They are written again in t + 2, by ranks that have what this one sends in t + 1, behind
// its kernel of t.
//
// Large ones. A block writes its part into all inboxes, then its flag there; what it waits for is
// the flags of the same block of the others, with the number of this turn. Two inboxes take turns:
// in t + 2 a rank writes where others read in t, and it has had flags of t + 1, which they raise
// behind their kernels of t.
#include <algorithm>

#include "ops/cuda_launch.cuh"
#include "ops/ranks/peer_kernels.h"

namespace headrace {
namespace {

// A pair of negative zeros in 16 bits, a number next to none in 32. What is sent is never it.
constexpr uint32_t kNothing = 0x80008000;
constexpr int kSmallThreads = 256;
constexpr int kLargeThreads = 512;
constexpr int kLargeBlocks = 64;   // as many as the links need
constexpr int kSharedBlocks = 16;  // where two ranks share a GPU, whose blocks must all find room
constexpr uint64_t kPatienceNanoseconds = kPeerPatienceSeconds * 1000 * 1000 * 1000;

__device__ __forceinline__ std::byte* own_of(const Peers& peers) {
  return peers.memory[peers.rank];
}
__device__ __forceinline__ PeerControl* control_of(const Peers& peers) {
  return reinterpret_cast<PeerControl*>(own_of(peers));
}

// Ends waiting for what does not come; once it has, all that follows is waited for no more.
class Patience {
 public:
  __device__ __forceinline__ bool ends(const Peers& peers) {
    if ((++looks_ & 0x3ff) != 0) return false;
    volatile uint32_t* const gave_up = peers.gave_up;
    if (*gave_up != 0) return true;
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (start_ == 0) start_ = now;
    if (now - start_ < kPatienceNanoseconds) return false;
    *gave_up = 1;
    return true;
  }

 private:
  uint64_t start_ = 0;
  uint32_t looks_ = 0;
};

__device__ __forceinline__ uint4 load_volatile(const std::byte* from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_volatile(std::byte* to, uint4 value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint32_t load_flag(const std::byte* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void raise_flag(std::byte* at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t without_nothing(uint32_t word) {
  return word == kNothing ? 0 : word;
}
__device__ __forceinline__ uint4 without_nothing(uint4 value) {
  return {without_nothing(value.x), without_nothing(value.y), without_nothing(value.z),
          without_nothing(value.w)};
}
__device__ __forceinline__ bool has_come(const uint4& value) {
  return value.x != kNothing && value.y != kNothing && value.z != kNothing && value.w != kNothing;
}

__device__ __forceinline__ uint4 receive(const Peers& peers, const std::byte* from) {
  Patience patience;
  for (;;) {
    const uint4 value = load_volatile(from);
    if (has_come(value) || patience.ends(peers)) return value;
  }
}

// The last block of a kernel notes what the next collective begins with.
template <class Note>
__device__ __forceinline__ void end_turn(const Peers& peers, const Note& note) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  PeerControl* const control = control_of(peers);
  if (atomicAdd(&control->blocks_done, 1) + 1 < gridDim.x) return;
  control->blocks_done = 0;
  note(*control);
}

__device__ __forceinline__ void start_collective(const Peers& peers) {
  if (peers.lets_next_start) gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
}

template <class T>
struct Sum {
  static constexpr int kWidth = gpu::kAccessBytes / static_cast<int>(sizeof(T));
  float values[kWidth];

  __device__ __forceinline__ void add(const uint4& access, bool first) {
    const auto vector = *reinterpret_cast<const gpu::Vector<T, kWidth>*>(&access);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float value = gpu::to_float(vector.values[i]);
      values[i] = first ? value : __fadd_rn(values[i], value);
    }
  }
  __device__ __forceinline__ uint4 rounded() const {
    gpu::Vector<T, kWidth> vector;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) vector.values[i] = gpu::from_float<T>(values[i]);
    return *reinterpret_cast<const uint4*>(&vector);
  }
};

// data[i] = sum over the ranks; `accesses` of 16 bytes.
template <class T>
__global__ void __launch_bounds__(kSmallThreads)
    add_small(const __grid_constant__ Peers peers, uint4* data, uint32_t accesses) {
  start_collective(peers);
  const PeerMemory places{peers.size};
  const uint32_t turn = control_of(peers)->small_turn;
  const uint32_t to_empty = control_of(peers)->small_accesses;
  const uint32_t first = blockIdx.x * kSmallThreads + threadIdx.x;
  const uint32_t stride = gridDim.x * kSmallThreads;
  for (uint32_t i = first; i < accesses; i += stride) {
    const int64_t at = int64_t{i} * gpu::kAccessBytes;
    const uint4 own = without_nothing(data[i]);
    for (int r = 0; r < peers.size; ++r) {
      if (r != peers.rank) {
        store_volatile(peers.memory[r] + places.small(turn, peers.rank) + at, own);
      }
    }
  }
  for (uint32_t i = first; i < to_empty; i += stride) {
    const int64_t at = int64_t{i} * gpu::kAccessBytes;
    for (int r = 0; r < peers.size; ++r) {
      if (r == peers.rank) continue;
      store_volatile(own_of(peers) + places.small(turn + PeerMemory::kSmallTurns - 1, r) + at,
                     {kNothing, kNothing, kNothing, kNothing});
    }
  }
  for (uint32_t i = first; i < accesses; i += stride) {
    const int64_t at = int64_t{i} * gpu::kAccessBytes;
    Sum<T> sum;
    for (int r = 0; r < peers.size; ++r) {
      sum.add(r == peers.rank ? without_nothing(data[i])
                              : receive(peers, own_of(peers) + places.small(turn, r) + at),
              r == 0);
    }
    data[i] = sum.rounded();
  }
  end_turn(peers, [&](PeerControl& control) {
    control.small_turn = (turn + 1) % PeerMemory::kSmallTurns;
    control.small_accesses = accesses;
  });
}

// What this block has written to the others' memory is there for their blocks of the same number
// from here on, and theirs for this one.
__device__ __forceinline__ void meet_blocks(const Peers& peers, uint32_t turn) {
  const PeerMemory places{peers.size};
  const int r = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x);
  __syncthreads();
  if (r < peers.size && r != peers.rank) {
    __threadfence_system();
    raise_flag(peers.memory[r] + places.flag(peers.rank, block), turn + 1);
    Patience patience;
    // A rank that has this one's flag may raise its next before this one looks again.
    while (static_cast<int32_t>(load_flag(own_of(peers) + places.flag(r, block)) - (turn + 1)) <
           0) {
      if (patience.ends(peers)) break;
    }
  }
  __syncthreads();
}

struct BlockRange {
  int64_t first, last;
  __device__ explicit BlockRange(int64_t count)
      : first(count * blockIdx.x / gridDim.x), last(count * (blockIdx.x + 1) / gridDim.x) {}
};

template <class T>
__global__ void __launch_bounds__(kLargeThreads)
    add_large(const __grid_constant__ Peers peers, uint4* data, int64_t accesses) {
  start_collective(peers);
  const PeerMemory places{peers.size};
  const uint32_t turn = control_of(peers)->large_turn;
  const BlockRange range(accesses);
  const int64_t first = range.first + threadIdx.x;
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) continue;
    auto* const to = reinterpret_cast<uint4*>(peers.memory[r] + places.large(turn, peers.rank));
#pragma unroll 4
    for (int64_t i = first; i < range.last; i += kLargeThreads) to[i] = data[i];
  }
  meet_blocks(peers, turn);
#pragma unroll 2
  for (int64_t i = first; i < range.last; i += kLargeThreads) {
    Sum<T> sum;
    for (int r = 0; r < peers.size; ++r) {
      const auto* const from =
          reinterpret_cast<const uint4*>(own_of(peers) + places.large(turn, r));
      sum.add(r == peers.rank ? data[i] : __ldcg(from + i), r == 0);
    }
    data[i] = sum.rounded();
  }
  end_turn(peers, [&](PeerControl& control) { control.large_turn = turn + 1; });
}

// Every rank's columns of `rows` rows of `data`, `stride` accesses apart.
template <class Access>
__global__ void __launch_bounds__(kLargeThreads)
    gather(const __grid_constant__ Peers peers, const __grid_constant__ PeerColumns columns,
           Access* data, int64_t stride, int64_t rows) {
  start_collective(peers);
  const PeerMemory places{peers.size};
  const uint32_t turn = control_of(peers)->large_turn;
  const auto width = [&](int r) { return columns.starts[r + 1] - columns.starts[r]; };
  const auto at = [&](int r, int64_t i) -> Access* {
    return data + i / width(r) * stride + columns.starts[r] + i % width(r);
  };
  const BlockRange own(rows * width(peers.rank));
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) continue;
    auto* const to = reinterpret_cast<Access*>(peers.memory[r] + places.large(turn, peers.rank));
#pragma unroll 4
    for (int64_t i = own.first + threadIdx.x; i < own.last; i += kLargeThreads) {
      to[i] = *at(peers.rank, i);
    }
  }
  meet_blocks(peers, turn);
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) continue;
    const auto* const from = reinterpret_cast<const Access*>(own_of(peers) + places.large(turn, r));
    const BlockRange theirs(rows * width(r));
#pragma unroll 4
    for (int64_t i = theirs.first + threadIdx.x; i < theirs.last; i += kLargeThreads) {
      *at(r, i) = __ldcg(from + i);
    }
  }
  end_turn(peers, [&](PeerControl& control) { control.large_turn = turn + 1; });
}

__global__ void fill_words(uint32_t* to, int64_t count, uint32_t value) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    to[i] = value;
  }
}

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }
int large_blocks(const Peers& peers) { return peers.share_gpu ? kSharedBlocks : kLargeBlocks; }

template <class... Parameters>
void launch(Stream& stream, void (*kernel)(Parameters...), int64_t blocks, int threads,
            const std::type_identity_t<Parameters>&... arguments) {
  gpu::check_launch(stream,
                    gpu::launch_overlapped(
                        kernel, {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = threads},
                        native(stream), arguments...));
}

template <class Access>
void gather_as(Stream& stream, const Peers& peers, const PeerColumns& columns, std::byte* data,
               int64_t stride, int64_t rows) {
  launch(stream, gather<Access>, large_blocks(peers), kLargeThreads, peers, columns,
         reinterpret_cast<Access*>(data), stride, rows);
}

}  // namespace

void empty_inboxes(Stream& stream, const Peers& peers) {
  const PeerMemory places{peers.size};
  std::byte* const memory = peers.memory[peers.rank];
  stream.fill_zero(memory, places.small());
  fill_words<<<64, 256, 0, native(stream)>>>(reinterpret_cast<uint32_t*>(memory + places.small()),
                                             (places.large() - places.small()) / 4, kNothing);
  gpu::check_launch(stream, cudaGetLastError());
}

void add_up(Stream& stream, const Peers& peers, DType dtype, std::byte* data, int64_t bytes) {
  auto* const accesses = reinterpret_cast<uint4*>(data);
  const int64_t count = bytes / gpu::kAccessBytes;
  gpu::with_float_type(dtype, [&]<class T>(gpu::ElementType<T>) {
    if (bytes > PeerMemory::kSmallBytes) {
      return launch(stream, add_large<T>, large_blocks(peers), kLargeThreads, peers, accesses,
                    count);
    }
    const int64_t blocks =
        std::min<int64_t>((count + kSmallThreads - 1) / kSmallThreads, large_blocks(peers));
    launch(stream, add_small<T>, blocks, kSmallThreads, peers, accesses,
           static_cast<uint32_t>(count));
  });
}

void gather_columns(Stream& stream, const Peers& peers, const PeerColumns& columns,
                    int access_bytes, std::byte* data, int64_t stride, int64_t rows) {
  if (access_bytes == 16) return gather_as<uint4>(stream, peers, columns, data, stride, rows);
  if (access_bytes == 4) return gather_as<uint32_t>(stream, peers, columns, data, stride, rows);
  CHECK(access_bytes == 2);
  gather_as<uint16_t>(stream, peers, columns, data, stride, rows);
}

}  // namespace headrace
