#include "engine/token_moves.h"

#include <cstring>

#include "base/check.h"

namespace headrace {
namespace {

// Of one head, keys or values, from one token of a page to one of another or the same.
void move_head(const KvHeadView& from, int64_t from_token, const KvHeadView& to, int64_t to_token) {
  const auto bytes = static_cast<size_t>(dtype_info(kv_element(from.format)).block_bytes);
  if (from.dim_step == 1 && !has_4_bits(from.format)) {
    std::memcpy(to.number(to_token, 0), from.number(from_token, 0),
                bytes * static_cast<size_t>(from.dim));
  } else {
    for (int32_t d = 0; d < from.dim; ++d) {
      std::memcpy(to.number(to_token, d), from.number(from_token, d), bytes);
    }
  }
  if (!has_scales(from.format)) return;
  for (int32_t d = 0; d < from.dim; d += kKvGroup) {
    *to.scale(to_token, d) = *from.scale(from_token, d);
  }
}

}  // namespace

void move_token(const KvStorage& storage, const SlotTable& slots, const TokenMove& move,
                LayerRange layers) {
  const KvPlan& plan = storage.plan();
  const int32_t block_tokens = plan.block_tokens;
  for (auto layer = static_cast<size_t>(layers.first); layer < static_cast<size_t>(layers.last);
       ++layer) {
    const KvLayerView& kv = storage.layers()[layer];
    const auto table = slots.block_table(move.slot, plan.layer_group[layer]);
    const int32_t from_page = table[static_cast<size_t>(move.from / block_tokens)];
    const int32_t to_page = table[static_cast<size_t>(move.to / block_tokens)];
    CHECK(from_page >= 0 && to_page >= 0);
    CHECK_MSG(kv.rate == 1 && kv.source_dim == 0, "tokens whose keys are shared do not move");
    const int32_t from = move.from % block_tokens, to = move.to % block_tokens;
    if (kv.index_dim > 0) move_head(index_head(kv, from_page), from, index_head(kv, to_page), to);
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      move_head(k_head(kv, from_page, head), from, k_head(kv, to_page, head), to);
      if (kv.v_aliases_k) continue;
      move_head(v_head(kv, from_page, head), from, v_head(kv, to_page, head), to);
    }
  }
}

}  // namespace headrace
