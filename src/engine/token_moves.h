// Moves tokens' keys and values, and what else pages keep of them, from one place of a sequence to
// another: what is accepted of a tree of proposals goes where it lay in a chain. CPU, paged memory.
#pragma once

#include "engine/kv_storage.h"
#include "engine/slot_table.h"

namespace headrace {

struct TokenMove {
  SlotId slot;
  int32_t from = 0, to = 0;  // tokens of its sequence; both have pages
};
// In these layers of the storage. Numbers and scales are moved as they are kept.
void move_token(const KvStorage& storage, const SlotTable& slots, const TokenMove& move,
                LayerRange layers);

}  // namespace headrace
