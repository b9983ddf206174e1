#include "ops/attention/panels.h"

#include <algorithm>
#include <vector>

#include "ops/attention/tiles.h"

namespace headrace {
namespace {

// Rows x heads of a group from which a sequence goes by panels, unless it has a tree: keys and
// values are converted for each panel, which costs as much as the f32 products of four rows.
constexpr int64_t kPanelRowsMin = 16;
// So many panels a thread, where there are rows enough: the last ones see the most keys.
constexpr int64_t kPanelsPerThread = 4;

int32_t group_of(const AttentionArgs& args) {
  return static_cast<int32_t>(args.q.columns() / args.kv.k_dim) / args.kv.kv_heads;
}

bool many_rows(const AttentionArgs& args, const AttentionSequence& sequence) {
  return sequence.tree_rows == 0 && int64_t{sequence.row_count} * group_of(args) >= kPanelRowsMin;
}

// The panels of a batch, numbered.
class PanelGrid {
 public:
  PanelGrid(const AttentionArgs& args, int threads) : args_(args), group_(group_of(args)) {
    int64_t rows = 0;
    for (const AttentionSequence& sequence : args.sequences) rows += rows_of(sequence);
    const int64_t share = rows * args.kv.kv_heads / (kPanelsPerThread * threads);
    const int64_t whole_tiles = (share + kPanelTileRows - 1) / kPanelTileRows * kPanelTileRows;
    panel_rows_ = std::clamp<int64_t>(whole_tiles, kPanelTileRows, kPanelRowsMax);
    for (const AttentionSequence& sequence : args.sequences) count_ += panels_of(sequence);
  }

  int64_t count() const { return count_; }

  AttentionPanel at(int64_t index) const {
    const AttentionSequence* sequence = args_.sequences.data();
    for (; index >= panels_of(*sequence); ++sequence) index -= panels_of(*sequence);
    const int64_t kv_head = index % args_.kv.kv_heads;
    const int64_t row_first = index / args_.kv.kv_heads * panel_rows_;
    const KvLayerView& kv = args_.kv;
    const auto head = static_cast<int32_t>(kv_head);
    const int64_t column = kv_head * group_ * kv.k_dim;
    return {
        .row_first = static_cast<int32_t>(row_first),
        .row_count = static_cast<int32_t>(std::min(panel_rows_, rows_of(*sequence) - row_first)),
        .group = group_,
        .q = f32_row(args_.q, sequence->row_first) + column,
        .q_stride = row_stride(args_.q),
        .out = f32_row(args_.out, sequence->row_first) + column,
        .out_stride = row_stride(args_.out),
        .key_last = sequence->kv_length - sequence->row_count + 1,
        .window = args_.window,
        .sinks = args_.sinks != nullptr ? args_.sinks + kv_head * group_ : nullptr,
        .keys = k_head(kv, 0, head).at,
        .values = v_head(kv, 0, head).at,
        .block_stride = kv.block_stride,
        .block_table = sequence->block_table + args_.table_offset,
        .head_dim = kv.k_dim,
        .format = kv.k_format,
        .scale = args_.scale,
        .soft_cap = args_.soft_cap};
  }

 private:
  template <class View>
  static int64_t row_stride(const View& view) {
    return view.rows() > 1 ? f32_row(view, 1) - f32_row(view, 0) : 0;
  }
  // Rows x heads of a group, of a sequence that goes by panels.
  int64_t rows_of(const AttentionSequence& sequence) const {
    return many_rows(args_, sequence) ? int64_t{sequence.row_count} * group_ : 0;
  }
  int64_t panels_of(const AttentionSequence& sequence) const {
    return (rows_of(sequence) + panel_rows_ - 1) / panel_rows_ * args_.kv.kv_heads;
  }

  const AttentionArgs& args_;
  const int32_t group_;
  int64_t panel_rows_ = kPanelTileRows;
  int64_t count_ = 0;
};

}  // namespace

bool fits_attention_panels(const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  const bool alike = kv.k_dim == kv.v_dim && kv.k_format == kv.v_format && !kv.v_aliases_k &&
                     kv.k_dim <= kPanelDimMax;
  return fits_attention_tiles(args) && alike && args.slopes == nullptr && args.chunk == 0 &&
         args.relative.count == 0 && kv.k_format != KvFormat::kF32 && !has_4_bits(kv.k_format) &&
         args.scale > 0 && std::ranges::any_of(args.sequences, [&](const auto& sequence) {
           return many_rows(args, sequence);
         });
}

void run_attention_panels(OpContext& context, const AttentionArgs& args, AttendPanel attend_panel,
                          AttendSplit attend_split) {
  const PanelGrid grid(args, context.device.pool().thread_count());
  context.device.pool().parallel_for(grid.count(), 1, [&](int64_t first, int64_t last) {
    // From the back: the last panels of a prompt see the most keys.
    for (int64_t i = first; i < last; ++i) attend_panel(grid.at(grid.count() - 1 - i));
  });
  std::vector<AttentionSequence> few;
  std::ranges::copy_if(args.sequences, std::back_inserter(few),
                       [&](const auto& sequence) { return !many_rows(args, sequence); });
  if (few.empty()) return;
  AttentionArgs rest = args;
  rest.sequences = few;
  run_attention_tiles(context, rest, attend_split);
}

}  // namespace headrace
