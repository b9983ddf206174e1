#include "ops/attention/materialised.h"

#include <memory>

#include "ops/attention/tiles.h"

namespace headrace {
namespace {

constexpr int64_t kRowGrain = 32;

int32_t element_of(KvFormat format) {
  if (format == KvFormat::kF32) return 0;
  return format == KvFormat::kF16 ? 1 : 2;
}

MaterialisedHead describe(const AttentionArgs& args, const AttentionSequence& sequence,
                          int32_t head) {
  const KvLayerView& kv = args.kv;
  const auto group = static_cast<int32_t>(args.q.columns() / kv.k_dim) / kv.kv_heads;
  const auto* keys = reinterpret_cast<const unsigned char*>(k_head(kv, 0, head / group).at);
  const int64_t column = int64_t{head} * kv.k_dim;
  return {.q = f32_row(args.q, sequence.row_first) + column,
          .q_stride = args.q.row_stride / int64_t{sizeof(float)},
          .out = f32_row(args.out, sequence.row_first) + column,
          .out_stride = args.out.row_stride / int64_t{sizeof(float)},
          .scores = nullptr,
          .scores_stride = (int64_t{sequence.kv_length} + 15) / 16 * 16,
          .keys = keys,
          .values = keys + kv.v_offset,
          .block_stride = kv.block_stride,
          .block_table = sequence.block_table + args.table_offset,
          .element = element_of(kv.k_format),
          .head_dim = kv.k_dim,
          .row_count = sequence.row_count,
          .kv_length = sequence.kv_length,
          .window = args.window,
          .scale = args.scale};
}

}  // namespace

// Entries of a block table wholly behind the window are not to be read, soft caps and sinks would
// be passes of their own, trees too.
bool fits_materialised_attention(const AttentionArgs& args) {
  return fits_attention_tiles(args) && alike_and_plain(args.kv, kv_element(args.kv.k_format)) &&
         args.window == 0 && args.chunk == 0 && args.soft_cap == 0 && args.sinks == nullptr &&
         args.slopes == nullptr && args.relative.count == 0 && !has_tree(args);
}

void run_materialised_attention(OpContext& context, const AttentionArgs& args) {
  ThreadPool& pool = context.device.pool();
  const auto heads = static_cast<int32_t>(args.q.columns() / args.kv.k_dim);
  for (const AttentionSequence& sequence : args.sequences) {
    if (sequence.row_count == 0) continue;
    const int64_t stride = (int64_t{sequence.kv_length} + 15) / 16 * 16;
    const auto scores =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(sequence.row_count * stride));
    for (int32_t h = 0; h < heads; ++h) {
      MaterialisedHead head = describe(args, sequence, h);
      head.scores = scores.get();
      for (const auto pass : {materialised_scores, materialised_softmax, materialised_values}) {
        pool.parallel_for(sequence.row_count, kRowGrain, [&](int64_t first, int64_t last) {
          pass(head, static_cast<int32_t>(first), static_cast<int32_t>(last));
        });
      }
    }
  }
}

}  // namespace headrace
