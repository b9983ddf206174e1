#include <array>
#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/pool_index_keys.h"
#include "ops/attention/sequence_choices.h"

namespace headrace {
namespace {

int64_t slot_of(const PoolIndexKeysArgs& args, const CompleteBlock& block, int32_t position) {
  const int32_t place = place_of(*block.sequence, block.row, position);
  const int32_t tokens = args.cache.block_tokens;
  const int32_t page = block.sequence->block_table[args.table_offset + place / tokens];
  return int64_t{page} * tokens + place % tokens;
}

void rotate_front(const PoolIndexKeysArgs& args, int64_t index, std::vector<float>& key) {
  const auto pairs = static_cast<size_t>(args.cos.columns());
  const float* const cos = f32_row(args.cos, index);
  const float* const sin = f32_row(args.sin, index);
  for (size_t i = 0; i < pairs; ++i) {
    const float a = key[i], b = key[i + pairs];
    key[i] = a * cos[i] - b * sin[i];
    key[i + pairs] = b * cos[i] + a * sin[i];
  }
}

void pool_block(const PoolIndexKeysArgs& args, int64_t index) {
  const CompleteBlock& block = args.blocks[static_cast<size_t>(index)];
  const int32_t last = block.sequence->position(block.row), dim = args.cache.index_dim;
  const int32_t page = args.cache.block_tokens;
  std::vector<double> sums(static_cast<size_t>(dim), 0.0);
  for (int32_t position = last + 1 - args.tokens; position <= last; ++position) {
    const int64_t slot = slot_of(args, block, position);
    const KvHeadView keys = index_head(args.cache, slot / page);
    for (int32_t d = 0; d < dim; ++d) {
      sums[static_cast<size_t>(d)] += load_number(keys, slot % page, d);
    }
  }
  double squares = 0;
  for (double& sum : sums) {
    sum /= args.tokens;
    squares += sum * sum;
  }
  const double factor = 1 / std::sqrt(squares / dim + args.norm_eps);
  std::vector<float> key;
  for (size_t d = 0; d < sums.size(); ++d) {
    key.push_back(static_cast<float>(sums[d] * factor * args.norm[d]));
  }
  rotate_front(args, index, key);
  store_index_key(args.cache, slot_of(args, block, last), key.data());
}

// No block reads a place that another writes: that is the last of the other's.
void pool_blocks(OpContext& context, const PoolIndexKeysArgs& args) {
  context.device.pool().parallel_for(std::ssize(args.blocks), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) pool_block(args, i);
  });
}

bool on_any_cpu(const DeviceTraits& traits, const PoolIndexKeysArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kPoolIndexKeysKernels = {
    Kernel<PoolIndexKeysArgs>{"pool_index_keys/cpu/reference", on_any_cpu, pool_blocks}};

}  // namespace

KernelTable<PoolIndexKeysArgs> pool_index_keys_cpu_kernels() { return kPoolIndexKeysKernels; }

}  // namespace headrace
