#include "models/parts/block_index.h"

#include <algorithm>

#include "models/parts/norm_heads.h"
#include "models/row_views.h"
#include "ops/attention/index_keys.h"
#include "ops/attention/pool_index_keys.h"
#include "ops/attention/sequence_choices.h"
#include "ops/linear/linear.h"
#include "ops/rows/rope_angles.h"

namespace headrace {
namespace {

// One head of a layer's cache.
KvLayerView head_of(const KvLayerView& kv, int32_t head) {
  KvLayerView one = kv;
  one.kv_heads = 1;
  one.base = k_head(kv, 0, head).at;
  one.v_offset = v_head(kv, 0, head).at - one.base;
  one.index_dim = 0;
  return one;
}

LayerKv gathered_kv(const LayerKv& kv) {
  return {.kv_heads = 1, .k_dim = kv.k_dim, .v_dim = kv.v_dim};
}

}  // namespace

// A row of a batch, and where it stands.
struct BlockIndex::RowOfSequence {
  const AttentionSequence* sequence;
  int32_t row;  // of the sequence's

  int64_t in_batch() const { return int64_t{sequence->row_first} + row; }
  int32_t position() const { return sequence->position(row); }
};

// One key head and its query heads.
struct BlockIndex::HeadRun {
  const MixerRun& run;
  const AttentionArgs& whole;
  const ChosenBlocks& chosen;
  int32_t head;

  // The chosen blocks of a row.
  std::span<const int32_t> blocks(const RowOfSequence& row) const {
    return {chosen.of(row.in_batch(), head), static_cast<size_t>(chosen.count(row.position()))};
  }
  // The positions of a block that a row sees end here.
  int32_t end(int32_t block, const RowOfSequence& row) const {
    return std::min((block + 1) * chosen.rule.tokens, row.position() + 1);
  }
  const int32_t* table(const RowOfSequence& row) const {
    return row.sequence->block_table + run.group.table_offset;
  }
  void attend(const KvLayerView& kv, std::span<const AttentionSequence> sequences) const {
    const int64_t heads = run.kv.kv_heads;
    const int64_t q_width = whole.q.columns() / heads, out_width = whole.out.columns() / heads;
    AttentionArgs args = whole;
    args.q = column_range(whole.q, head * q_width, q_width);
    args.out = column_range(whole.out, head * out_width, out_width);
    args.kv = kv;
    args.sequences = sequences;
    args.table_offset = 0;
    attention(run.branch.context(), args);
  }
};

void BlockIndex::take(int32_t first, int32_t count) {
  if (pools()) return;
  head_first_ = first;
  spec_.heads = count;
}

Status BlockIndex::check_device(const DeviceTraits& device) const {
  if (!is_here() || device.kind == DeviceKind::kCpu) return ok_status();
  return unsupported("an index of blocks of keys has no kernels on a GPU yet: use --device cpu");
}

Status BlockIndex::load(LayerTensors& tensors) {
  if (!is_here()) return ok_status();
  HR_ASSIGN_OR_RETURN(query_norm_, tensors.vector("indexer.q_norm.weight", spec_.dim));
  HR_ASSIGN_OR_RETURN(key_norm_, tensors.vector("indexer.k_norm.weight", spec_.dim));
  if (pools()) {
    HR_ASSIGN_OR_RETURN(
        made_, tensors.matrix({.rows = {{"indexer.attn_qk", made_width()}}, .columns = hidden_}));
    return ok_status();
  }
  const MatrixStack::Rows queries{.name = "indexer.attn_q",
                                  .count = query_width(),
                                  .first = int64_t{head_first_} * spec_.dim,
                                  .of = int64_t{whole_heads_} * spec_.dim};
  HR_ASSIGN_OR_RETURN(made_, tensors.matrix({.rows = {queries, {"indexer.attn_k", spec_.dim}},
                                             .columns = hidden_}));
  return ok_status();
}

std::vector<LinearWeight*> BlockIndex::matrices() {
  if (!is_here()) return {};
  return {&made_.weight};
}

int64_t BlockIndex::scratch_columns() const {
  return is_here() ? made_width() + chosen_numbers() : 0;
}

int64_t BlockIndex::op_workspace_bytes(const PartLoad& load, const LayerKv& kv) const {
  if (!is_here()) return 0;
  constexpr int64_t kBlockTokensMax = 64;  // of a page, whose last may be a part of one
  const int64_t keys = kGatheredRows * (spec_.rule.keys() + kBlockTokensMax);
  const int64_t gathered = keys * (kv.k_dim + kv.v_dim) * static_cast<int64_t>(sizeof(float)) + 512;
  const int64_t angles = 2 * load.rows * std::ssize(spec_.inv_freq) * int64_t{sizeof(float)} + 512;
  return std::max(
      {linear_workspace_bytes(load.rows, made_.weight), angles,
       select_blocks_workspace_bytes(spec_.rule, spec_.heads, load.kv_length_max),
       gathered + attention_workspace_bytes(load.thread_count, kv.v_dim, spec_.rule.keys())});
}

ChosenBlocks BlockIndex::choose(const MixerRun& run, const TensorView& area) const {
  OpContext& context = run.branch.context();
  const TensorView made = column_range(area, 0, made_width());
  const TensorView queries = column_range(area, 0, query_width());
  const TensorView keys = column_range(area, query_width(), spec_.dim);
  run.branch.multiply_input(made_, made);
  norm_heads(context, queries, query_norm_, spec_.norm_eps, spec_.heads);
  if (!pools()) norm_heads(context, keys, key_norm_, spec_.norm_eps, 1);
  const RopeAngles& angles = run.angles[static_cast<size_t>(rope_)];
  index_keys(context, {.keys = keys,
                       .queries = queries,
                       .cos = angles.cos,
                       .sin = angles.sin,
                       .cache = run.kv,
                       .slots = run.group.slots,
                       .rotates_keys = !pools()});
  if (pools()) pool_keys(run);
  const TensorView places = column_range(area, made_width(), chosen_numbers());
  const ChosenBlocks chosen{.front = reinterpret_cast<int32_t*>(places.data),
                            .stride = places.row_stride / static_cast<int64_t>(sizeof(int32_t)),
                            .rule = spec_.rule};
  select_blocks(context, {.queries = queries,
                          .kv = run.kv,
                          .sequences = run.group.sequences,
                          .table_offset = run.group.table_offset,
                          .chosen = chosen});
  return chosen;
}

// Of the blocks of which this step has the last token.
void BlockIndex::pool_keys(const MixerRun& run) const {
  std::vector<CompleteBlock> blocks;
  std::vector<int32_t> firsts;
  for (const AttentionSequence& sequence : run.group.sequences) {
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      const int32_t behind = sequence.position(r) + 1;
      if (behind % spec_.rule.tokens != 0) continue;
      blocks.push_back({&sequence, r});
      firsts.push_back(behind - spec_.rule.tokens);
    }
  }
  if (blocks.empty()) return;
  OpContext& context = run.branch.context();
  const Workspace::Mark mark(context.workspace);
  const Shape shape{std::ssize(blocks), std::ssize(spec_.inv_freq)};
  const TensorView cos = context.workspace.take_tensor(DType::kF32, shape);
  const TensorView sin = context.workspace.take_tensor(DType::kF32, shape);
  rope_angles(context, {.positions = firsts,
                        .inv_freq = spec_.inv_freq,
                        .scale = spec_.angle_scale,
                        .cos = cos,
                        .sin = sin});
  pool_index_keys(context, {.cache = run.kv,
                            .table_offset = run.group.table_offset,
                            .tokens = spec_.rule.tokens,
                            .norm = key_norm_.data(),
                            .norm_eps = spec_.norm_eps,
                            .cos = cos,
                            .sin = sin,
                            .blocks = blocks});
}

// Rows that see no more keys than they may attend attend the cache as it lies; of the others each
// head its own blocks, where they lie or where they are gathered. A row's keys are summed in one
// order whichever way it goes, so that its bits do not depend on it.
void BlockIndex::attend(const MixerRun& run, const LayerKv& kv, const AttentionArgs& whole,
                        const TensorView& area) const {
  const ChosenBlocks chosen = choose(run, area);
  std::vector<AttentionSequence> fronts;
  std::vector<RowOfSequence> in_pages, strewn;
  for (const AttentionSequence& sequence : run.group.sequences) {
    AttentionSequence front = sequence;
    if (sequence.kv_length > spec_.rule.keys_of_all()) {
      const int32_t first = sequence.kv_length - sequence.row_count;
      const int32_t before_tree = std::max(0, sequence.row_count - sequence.tree_rows);
      front.row_count = std::clamp(spec_.rule.keys_of_all() - first, 0, before_tree);
      front.kv_length = first + front.row_count;
      front.tree_rows = 0;
      front.paths = nullptr;
    }
    if (front.row_count > 0) fronts.push_back(front);
    for (int32_t r = front.row_count; r < sequence.row_count; ++r) {
      const RowOfSequence row{&sequence, r};
      (lies_in_pages(row, run.kv.block_tokens) ? in_pages : strewn).push_back(row);
    }
  }
  if (!fronts.empty()) {
    AttentionArgs args = whole;
    args.sequences = fronts;
    attention(run.branch.context(), args);
  }
  for (int32_t head = 0; head < run.kv.kv_heads; ++head) {
    const HeadRun of_head{run, whole, chosen, head};
    if (!in_pages.empty()) attend_pages(of_head, in_pages);
    for (size_t first = 0; first < strewn.size(); first += kGatheredRows) {
      const size_t count = std::min<size_t>(kGatheredRows, strewn.size() - first);
      attend_gathered(of_head, std::span(strewn).subspan(first, count), kv);
    }
  }
}

// Whether its blocks of keys are whole pages of the cache: what a row of a tree sees is strewn.
bool BlockIndex::lies_in_pages(const RowOfSequence& row, int32_t block_tokens) const {
  return spec_.rule.tokens % block_tokens == 0 && row.sequence->path(row.row) == 0;
}

// Nothing is moved: a row is a sequence of the pages that it has chosen.
void BlockIndex::attend_pages(const HeadRun& head, const std::vector<RowOfSequence>& rows) const {
  const int32_t page = head.run.kv.block_tokens;
  const auto stride = static_cast<size_t>(gathered_blocks(page));
  std::vector<int32_t> tables(rows.size() * stride);
  std::vector<AttentionSequence> sequences;
  for (const RowOfSequence& row : rows) {
    int32_t* const table = tables.data() + sequences.size() * stride;
    int32_t* next = table;
    int32_t keys = 0;
    for (const int32_t block : head.blocks(row)) {
      const int32_t first = block * spec_.rule.tokens, end = head.end(block, row);
      for (int32_t p = first; p < end; p += page) *next++ = head.table(row)[p / page];
      keys += end - first;
    }
    sequences.push_back({.row_first = static_cast<int32_t>(row.in_batch()),
                         .row_count = 1,
                         .kv_length = keys,
                         .block_table = table});
  }
  head.attend(head_of(head.run.kv, head.head), sequences);
}

void BlockIndex::attend_gathered(const HeadRun& head, std::span<const RowOfSequence> rows,
                                 const LayerKv& kv) const {
  OpContext& context = head.run.branch.context();
  const Workspace::Mark mark(context.workspace);
  const int32_t page = head.run.kv.block_tokens, blocks = gathered_blocks(page);
  const auto top = static_cast<size_t>(spec_.rule.keys());
  KvLayerView pages = kv_view(gathered_kv(kv), {KvFormat::kF32}, KeyLayout::kTransposed, page);
  pages.block_stride = layer_part_bytes(pages);
  pages.base = context.workspace.take(pages.block_stride * blocks * kGatheredRows);
  std::vector<int32_t> table(rows.size() * static_cast<size_t>(blocks));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::vector<int32_t> places(rows.size() * top);
  std::vector<GatheredRow> gathered;
  std::vector<AttentionSequence> sequences;
  for (const RowOfSequence& row : rows) {
    const auto first_block = static_cast<int32_t>(gathered.size()) * blocks;
    int32_t* const of_row = places.data() + gathered.size() * top;
    int32_t count = 0;
    for (const int32_t block : head.blocks(row)) {
      const int32_t end = head.end(block, row);
      for (int32_t p = block * spec_.rule.tokens; p < end; ++p) {
        of_row[count++] = place_of(*row.sequence, row.row, p);
      }
    }
    gathered.push_back({.places = of_row,
                        .count = count,
                        .block_table = head.table(row),
                        .first_block = first_block,
                        .head = head.head});
    sequences.push_back({.row_first = static_cast<int32_t>(row.in_batch()),
                         .row_count = 1,
                         .kv_length = count,
                         .block_table = table.data() + first_block});
  }
  gather_keys(context, {.from = head.run.kv, .rows = gathered, .to = pages});
  head.attend(pages, sequences);
}

}  // namespace headrace
