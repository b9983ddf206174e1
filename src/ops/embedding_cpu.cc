#include "ops/embedding.h"
#include "tensor/quantised_row.h"

namespace headrace {

void embedding_reference(OpContext& context, const EmbeddingArgs& args) {
  // Below 16 rows (some 10 us) a fork-join costs more than it saves.
  context.device.pool().parallel_for(args.out.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const TokenId token = args.tokens[static_cast<size_t>(t)];
      CHECK(token >= 0 && token < args.table.rows());
      float* out = f32_row(args.out, t);  // [D]
      dequantise_row(args.table, token, out);
      for (int64_t i = 0; i < args.out.columns(); ++i) out[i] *= args.scale;
    }
  });
}

}  // namespace headrace
