#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/attention/attention_vec16.h"

namespace headrace {

void attend_split_avx512(const AttentionTile& tile, int32_t split_first,
                         const AttentionPartial& partial) {
  attend_split(tile, split_first, partial);
}

}  // namespace headrace
