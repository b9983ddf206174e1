#include <algorithm>
#include <array>

#include "ops/attention/gather_keys.h"
#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

// Keys [first, first + count) of a row to one head of a block of their own. What lies behind the
// last is zero, as nothing sees it.
void gather_block(const KvLayerView& from, const GatheredRow& row, int32_t head, int32_t first,
                  float* to) {
  const int32_t block_tokens = from.block_tokens;
  const int32_t count = std::min(block_tokens, row.count - first);
  if (count < block_tokens) std::fill_n(to, int64_t{from.k_dim} * block_tokens, 0.0f);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t place = row.places[first + i], token = place % block_tokens;
    const KvHeadView key = k_head(from, row.block_table[place / block_tokens], head);
    for (int32_t d = 0; d < from.k_dim; ++d) {
      to[int64_t{d} * block_tokens + i] = load_number(key, token, d);
    }
  }
}

void gather_blocks(OpContext& context, const GatherKeysArgs& args) {
  int32_t blocks_max = 0;
  for (const GatheredRow& row : args.rows) {
    blocks_max =
        std::max(blocks_max, (row.count + args.from.block_tokens - 1) / args.from.block_tokens);
  }
  const int64_t units = std::ssize(args.rows) * blocks_max;
  context.device.pool().parallel_for(units, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const GatheredRow& row = args.rows[static_cast<size_t>(unit / blocks_max)];
      const auto block = static_cast<int32_t>(unit % blocks_max);
      const int32_t key_first = block * args.from.block_tokens;
      if (key_first >= row.count) continue;
      for (int32_t head = 0; head < args.from.kv_heads; ++head) {
        auto* const to =
            reinterpret_cast<float*>(k_head(args.to, row.first_block + block, head).at);
        gather_block(args.from, row, head, key_first, to);
      }
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
