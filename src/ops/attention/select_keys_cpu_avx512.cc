#include "ops/vec16_avx512.h"
// The body is written in the vocabulary above.
#include "ops/attention/select_keys_vec16.h"

namespace headrace {

void score_block_avx512(const BlockScores& block) { score_block(block); }

}  // namespace headrace
