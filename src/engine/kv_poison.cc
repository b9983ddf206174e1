#include "engine/kv_poison.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in every float type, that of scales among them

// All heads of a layer at one cache slot.
void poison_slot(const KvLayerView& layer, int64_t slot) {
  const std::vector<float> nans(
      static_cast<size_t>(std::max({layer.k_dim, layer.v_dim, layer.index_dim})),
      std::numeric_limits<float>::quiet_NaN());
  for (int32_t head = 0; head < layer.kv_heads; ++head) {
    store_key(layer, slot, head, nans.data());
    if (!layer.v_aliases_k) store_value(layer, slot, head, nans.data());
  }
  if (layer.index_dim > 0) store_index_key(layer, slot, nans.data());
}

}  // namespace

void poison_pool(const KvStorage& storage, int64_t page_count) {
  std::fill_n(storage.pool(), page_count * storage.plan().page_bytes, kPoison);
}

void poison_new_pages(const KvStorage& storage, const StepPlan& plan) {
  const int64_t bytes = storage.plan().page_bytes;
  for (const Work& work : plan.work) {
    for (const GroupBlocks& group : work.new_blocks) {
      for (const BlockId page : group.blocks) {
        std::fill_n(storage.pool() + page.value * bytes, bytes, kPoison);
      }
    }
  }
}

void poison_tokens(const KvStorage& storage, const SlotTable& slots, SlotId slot, int32_t first,
                   int32_t last) {
  const KvPlan& plan = storage.plan();
  for (size_t layer = 0; layer < storage.layers().size(); ++layer) {
    const auto table = slots.block_table(slot, plan.layer_group[layer]);
    for (int32_t token = first; token < last; ++token) {
      const int32_t page = table[static_cast<size_t>(token / plan.block_tokens)];
      poison_slot(storage.layers()[layer],
                  int64_t{page} * plan.block_tokens + token % plan.block_tokens);
    }
  }
}

}  // namespace headrace
