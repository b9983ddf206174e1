// Deltas of block tables, tokens that are still on the device, and marks of penalties, in one
// launch: a thread an item.
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/slot_state.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

// Two counts share a 32-bit word, which is what atomics take.
__device__ void mark(uint16_t* token_counts, const TokenMark& item) {
  auto* word = reinterpret_cast<uint32_t*>(token_counts) + item.index / 2;
  const int shift = item.index % 2 == 0 ? 0 : 16;
  if (item.in_output == 0) {
    atomicOr(word, static_cast<uint32_t>(kTokenInPrompt) << shift);
  } else {  // outputs of a sequence are fewer than kTokenCountMax, or the count stays at it
    uint32_t before = *word, seen;
    do {
      seen = before;
      if ((seen >> shift & kTokenCountMax) == kTokenCountMax) return;
      before = atomicCAS(word, seen, seen + (1u << shift));
    } while (before != seen);
  }
}

struct Launch {
  const BlockTableEntry* entries;
  const TokenMark* marks;
  TokenId* tokens;
  int64_t entry_count, token_count, mark_count;
  int32_t* block_tables;
  uint16_t* token_counts;
  const TokenId* last_tokens;
};

__global__ void __launch_bounds__(kThreads) update(Launch launch) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  auto i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < launch.entry_count) {
    launch.block_tables[launch.entries[i].index] = launch.entries[i].block;
    return;
  }
  i -= launch.entry_count;
  if (i < launch.token_count) {
    TokenId& token = launch.tokens[i];
    if (token < 0) token = launch.last_tokens[-1 - token];
    return;
  }
  i -= launch.token_count;
  if (i < launch.mark_count) mark(launch.token_counts, launch.marks[i]);
}

void run(OpContext& context, const SlotStateArgs& args) {
  const Launch launch{.entries = args.entries.data(),
                      .marks = args.marks.data(),
                      .tokens = args.tokens.data(),
                      .entry_count = static_cast<int64_t>(args.entries.size()),
                      .token_count = static_cast<int64_t>(args.tokens.size()),
                      .mark_count = static_cast<int64_t>(args.marks.size()),
                      .block_tables = args.block_tables,
                      .token_counts = args.token_counts,
                      .last_tokens = args.last_tokens};
  const int64_t items = launch.entry_count + launch.token_count + launch.mark_count;
  gpu::launch(context, update, gpu::blocks_for(items, kThreads), kThreads, launch);
}

bool any(const DeviceTraits& traits, const SlotStateArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<SlotStateArgs>{"slot_state/cuda/any", any, run}};

}  // namespace

KernelTable<SlotStateArgs> slot_state_cuda_kernels() { return kKernels; }

}  // namespace headrace
