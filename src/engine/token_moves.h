// Moves tokens' keys and values, and what else pages keep of them, from one place of a sequence to
// another: what is accepted of a tree of proposals goes where it lay in a chain. CPU, paged memory.
#pragma once

#include "engine/kv_storage.h"
#include "engine/slot_table.h"

namespace headrace {

// Token `from` of a slot's sequence to the place of token `to`, in all layers. Both have pages.
// Numbers and scales are moved as they are kept.
void move_token(const KvStorage& storage, const SlotTable& slots, SlotId slot, int32_t from,
                int32_t to);

}  // namespace headrace
