#include <algorithm>
#include <array>

#include "ops/attention/gather_keys.h"
#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

// Numbers of some places, side by side: those of block `block` of a row's own.
struct GatheredBlock {
  const GatherKeysArgs& args;
  const GatheredRow& row;
  int32_t block;

  // Of the block's tokens those that are gathered now.
  int32_t first() const { return std::max(row.before - block * args.to.block_tokens, 0); }
  int32_t last() const {
    const int32_t end = row.before + row.count - block * args.to.block_tokens;
    return std::min(end, args.to.block_tokens);
  }

  // What lies behind the last is zero, as nothing sees it.
  template <class HeadOf>
  void gather(const HeadOf& head_of) const {
    const int32_t tokens = args.from.block_tokens;
    const KvHeadView to = head_of(args.to, row.first_block + block, 0);
    auto* const numbers = reinterpret_cast<float*>(to.at);
    const auto number = [&](int32_t i, int32_t d) -> float& {
      return numbers[int64_t{i} * to.token_step + int64_t{d} * to.dim_step];
    };
    for (int32_t i = last(); i < args.to.block_tokens; ++i) {
      for (int32_t d = 0; d < to.dim; ++d) number(i, d) = 0.0f;
    }
    for (int32_t i = first(); i < last(); ++i) {
      const int32_t place = row.places[block * args.to.block_tokens + i - row.before];
      const KvHeadView from = head_of(args.from, row.block_table[place / tokens], row.head);
      for (int32_t d = 0; d < to.dim; ++d) {
        number(i, d) = load_number(from, place % tokens / args.from.rate, d);
      }
    }
  }
};

void gather_blocks(OpContext& context, const GatherKeysArgs& args) {
  const int32_t tokens = args.to.block_tokens;
  int32_t blocks_max = 0;
  for (const GatheredRow& row : args.rows) {
    blocks_max = std::max(blocks_max, (row.before + row.count + tokens - 1) / tokens);
  }
  const int64_t units = std::ssize(args.rows) * blocks_max;
  context.device.pool().parallel_for(units, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const GatheredRow& row = args.rows[static_cast<size_t>(unit / blocks_max)];
      const GatheredBlock block{args, row, static_cast<int32_t>(unit % blocks_max)};
      if (block.first() >= block.last()) continue;
      block.gather(k_head);
      if (!args.to.v_aliases_k) block.gather(v_head);
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const GatherKeysArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kGatherKeysKernels = {
    Kernel<GatherKeysArgs>{"gather_keys/cpu/reference", any_cpu, gather_blocks},
};

}  // namespace

KernelTable<GatherKeysArgs> gather_keys_cpu_kernels() { return kGatherKeysKernels; }

}  // namespace headrace
