#include "ops/rows/embedding.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

// read_row(token, out [D]) for every token.
template <class ReadRow>
void for_each_row(OpContext& context, const EmbeddingArgs& args, const ReadRow& read_row) {
  // Below 16 rows (some 10 us) a fork-join costs more than it saves.
  context.device.pool().parallel_for(args.out.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      float* out = f32_row(args.out, t);  // [D]
      read_row(args.tokens[static_cast<size_t>(t)], out);
      for (int64_t i = 0; i < args.out.columns(); ++i) out[i] *= args.scale;
      if (args.position_table.data == nullptr) continue;
      const int32_t position = args.positions[static_cast<size_t>(t)];
      CHECK(position >= 0 && position < args.position_table.rows());
      const float* const row = f32_row(args.position_table, position);  // [D]
      for (int64_t i = 0; i < args.out.columns(); ++i) out[i] += row[i];
    }
  });
}

// In a table of `rows`.
TokenId known_token(const EmbeddingArgs& args, TokenId token, int64_t rows) {
  return args.first_for_others && token >= rows ? 0 : token;
}

}  // namespace

void embedding_reference(OpContext& context, const EmbeddingArgs& args) {
  for_each_row(context, args, [&](TokenId asked, float* out) {
    const TokenId token = known_token(args, asked, args.table.rows());
    CHECK(token >= 0 && token < args.table.rows());
    dequantise_row(args.table, token, out);
  });
}

void embedding_packed(OpContext& context, const EmbeddingArgs& args) {
  for_each_row(context, args, [&](TokenId asked, float* out) {
    const TokenId token = known_token(args, asked, args.packed->n());
    CHECK(token >= 0 && token < args.packed->n());
    args.packed->read_row(token, out);
  });
}

}  // namespace headrace
