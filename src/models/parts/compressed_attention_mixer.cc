#include "models/parts/compressed_attention_mixer.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/round_up.h"
#include "models/parts/branch_output.h"
#include "models/parts/norm_heads.h"
#include "models/row_views.h"
#include "ops/attention/attention.h"
#include "ops/attention/compress_keys.h"
#include "ops/attention/gather_keys.h"
#include "ops/linear/linear.h"
#include "ops/rows/rotate_tails.h"

namespace headrace {
namespace {

// Rows whose keys lie in the workspace at a time.
constexpr int32_t kRowsTogether = 8;

// A row of a batch, and what it attends of both kinds of keys.
struct AttendingRow {
  // Its sequence, in pages of tokens and of shared keys.
  const AttentionSequence* own = nullptr;
  const AttentionSequence* shared = nullptr;
  int32_t in_batch = 0;
  int32_t position = 0;
  std::vector<int32_t> window_places = {};
  std::vector<int32_t> shared_places = {};

  int32_t keys() const { return static_cast<int32_t>(window_places.size() + shared_places.size()); }
};

class CompressedAttentionMixer final : public Mixer {
 public:
  CompressedAttentionMixer(const CompressedAttentionSpec& spec, int64_t hidden)
      : spec_(spec),
        hidden_(hidden),
        whole_groups_(spec.groups),
        compressor_(spec.compressor, hidden),
        out_(int64_t{spec.groups} * spec.group_rank, hidden) {}

  // A rank has groups of heads, and the keys of all. Fewer groups than ranks are computed by every
  // rank.
  Status split(const ShardSpec& shard) override {
    if (whole_groups_ < shard.ranks) return ok_status();
    const Shares groups(whole_groups_, shard.ranks, 1);
    out_.split(shard, groups.times(spec_.group_rank));
    if (shard.all_on_one) return ok_status();
    const int32_t heads = spec_.group_heads();
    group_first_ = static_cast<int32_t>(groups.first(shard.rank));
    spec_.groups = static_cast<int32_t>(groups.count(shard.rank));
    spec_.heads = spec_.groups * heads;
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    const int64_t all_heads = int64_t{whole_groups_} * spec_.group_heads();
    HR_ASSIGN_OR_RETURN(
        down_,
        tensors.matrix({.rows = {{"attn_q_a", spec_.query_rank}, {"attn_kv", spec_.head_dim}},
                        .columns = hidden_}));
    HR_ASSIGN_OR_RETURN(query_norm_, tensors.vector("attn_q_a_norm.weight", spec_.query_rank));
    HR_ASSIGN_OR_RETURN(key_norm_, tensors.vector("attn_kv_norm.weight", spec_.head_dim));
    HR_ASSIGN_OR_RETURN(head_norm_, tensors.constant(spec_.head_dim, 1.0f));
    HR_ASSIGN_OR_RETURN(sinks_, tensors.vector("attn_sinks.weight", all_heads));
    const MatrixStack::Rows queries{.name = "attn_q_b",
                                    .count = query_width(),
                                    .first = int64_t{head_first()} * spec_.head_dim,
                                    .of = all_heads * spec_.head_dim};
    HR_ASSIGN_OR_RETURN(query_up_,
                        tensors.matrix({.rows = {queries}, .columns = spec_.query_rank}));
    HR_RETURN_IF_ERROR(compressor_.load(tensors));
    for (int32_t g = group_first_; g < group_first_ + spec_.groups; ++g) {
      const MatrixStack::Rows group{.name = "attn_output_a",
                                    .count = spec_.group_rank,
                                    .first = int64_t{g} * spec_.group_rank,
                                    .of = int64_t{whole_groups_} * spec_.group_rank};
      HR_ASSIGN_OR_RETURN(LinearLayer of_group,
                          tensors.matrix({.rows = {group}, .columns = group_width()}));
      groups_.push_back(std::move(of_group));
    }
    return out_.load(tensors, MatrixStack::Rows{"attn_output_b", hidden_}, /*bias=*/false);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&down_.weight, &query_up_.weight};
    for (LinearWeight* const of_keys : compressor_.matrices()) all.push_back(of_keys);
    for (LinearLayer& group : groups_) all.push_back(&group.weight);
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }

  LayerKv kept() const override {
    return {.kv_heads = 1,
            .k_dim = spec_.head_dim,
            .v_dim = spec_.head_dim,
            .window = std::max(spec_.window, spec_.compressor.span()),
            .v_aliases_k = true,
            .source_dim = compressor_.source_dim()};
  }
  int32_t pages_beside() const override { return spec_.compressor.layer; }
  int32_t query_heads() const override { return spec_.heads; }
  std::vector<int64_t> scratch_columns(bool) const override {
    return {int64_t{spec_.query_rank} + spec_.head_dim,
            query_width(),
            query_width(),
            out_.input_width(),
            std::max<int64_t>(compressor_.made_columns(), 1),
            std::max<int64_t>(compressor_.index_columns(), 1)};
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    const auto of = [&](const LinearLayer& layer) {
      return linear_workspace_bytes(load.rows, layer.weight);
    };
    int64_t bytes =
        std::max({of(down_), of(query_up_), of(groups_.front()), out_.op_workspace_bytes(load.rows),
                  compressor_.op_workspace_bytes(load)});
    if (!spec_.compressor.is_here()) {
      return std::max(
          bytes, attention_workspace_bytes(load.thread_count, spec_.head_dim, load.kv_length_max));
    }
    const int32_t keys = keys_max(load.kv_length_max);
    return std::max(bytes, gathered_bytes(keys) +
                               attention_workspace_bytes(load.thread_count, spec_.head_dim, keys));
  }

  Status check_device(const DeviceTraits& device, DType /*activations*/) const override {
    if (device.kind == DeviceKind::kCpu) return ok_status();
    return unsupported(
        "attention of one key for all heads, and of keys that several tokens share, has no "
        "kernels on a GPU yet: use --device cpu");
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    OpContext& context = run.branch.context();
    const TensorView down = run.scratch.rows(kDown, rows, down_.weight.n());
    const TensorView latents = column_range(down, 0, spec_.query_rank);
    const TensorView keys = column_range(down, spec_.query_rank, spec_.head_dim);
    const TensorView queries = run.scratch.rows(kQueries, rows, query_width());
    const TensorView seen = run.scratch.rows(kSeen, rows, query_width());
    run.branch.multiply_input(down_, down);
    TensorView made, sources;
    if (spec_.compressor.is_here()) {
      made = run.scratch.rows(kMade, rows, compressor_.made_columns());
      sources = compressor_.make_sources(run, made);
    }
    norm_heads(context, latents, query_norm_, spec_.norm_eps);
    norm_heads(context, keys, key_norm_, spec_.norm_eps);
    multiply(context, query_up_, latents, queries);
    norm_heads(context, queries, head_norm_, spec_.norm_eps, spec_.heads);
    const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
    RotateTailsArgs rotation{
        .x = queries, .cos = angles.cos, .sin = angles.sin, .head_dim = spec_.head_dim};
    rotate_tails(context, rotation);
    rotation.x = keys;
    rotate_tails(context, rotation);
    keep_sources(context,
                 {.keys = keys, .sources = sources, .cache = run.kv, .slots = run.group.slots});
    AttentionArgs attended{.q = queries,
                           .kv = run.kv,
                           .sequences = run.group.sequences,
                           .table_offset = run.group.table_offset,
                           .scale = spec_.scale,
                           .window = spec_.window,
                           .f32_products = down_.weight.compute() != LinearCompute::kFast,
                           .sinks = sinks_.data() + head_first(),
                           .out = seen};
    if (spec_.compressor.is_here()) {
      attend_both(run, latents, made, attended);
    } else {
      attention(context, attended);
    }
    rotation.x = seen;
    rotation.backwards = true;
    rotate_tails(context, rotation);
    end_with_groups(run, seen);
  }

 private:
  enum Area : size_t { kDown, kQueries, kSeen, kGroups, kMade, kIndex };  // of scratch memory

  int64_t query_width() const { return int64_t{spec_.heads} * spec_.head_dim; }
  int64_t group_width() const { return int64_t{spec_.group_heads()} * spec_.head_dim; }
  int32_t head_first() const { return group_first_ * spec_.group_heads(); }
  // Keys that a row attends at most.
  int32_t keys_max(int32_t kv_length_max) const {
    const KeyCompressorSpec& shared = spec_.compressor;
    const int32_t all = kv_length_max / shared.rate;
    return spec_.window + (shared.has_index() ? std::min(shared.index_top, all) : all);
  }
  LayerKv gathered_kv() const {
    return {.kv_heads = 1, .k_dim = spec_.head_dim, .v_dim = spec_.head_dim, .v_aliases_k = true};
  }
  int64_t gathered_bytes(int32_t keys) const {
    constexpr int64_t kBlockTokensMax = 64;  // of a page, whose last may be a part of one
    return kRowsTogether * (keys + kBlockTokensMax) * spec_.head_dim *
               static_cast<int64_t>(sizeof(float)) +
           512;
  }

  // Rows go through both kinds of keys side by side, those of the window first.
  void attend_both(const MixerRun& run, const TensorView& latents, const TensorView& made,
                   const AttentionArgs& whole) const {
    compressor_.compress(run);
    ChosenPlaces chosen;
    if (spec_.compressor.has_index()) {
      const TensorView area =
          run.scratch.rows(kIndex, run.branch.rows(), compressor_.index_columns());
      chosen = compressor_.choose(run, latents, made, area);
    }
    std::vector<AttendingRow> rows;
    for (size_t s = 0; s < run.group.sequences.size(); ++s) {
      const AttentionSequence& own = run.group.sequences[s];
      for (int32_t r = 0; r < own.row_count; ++r) {
        rows.push_back({.own = &own,
                        .shared = &run.beside.group->sequences[s],
                        .in_batch = own.row_first + r,
                        .position = own.position(r)});
        if (rows.size() < kRowsTogether) continue;
        attend_rows(run, chosen, whole, rows);
        rows.clear();
      }
    }
    if (!rows.empty()) attend_rows(run, chosen, whole, rows);
  }

  void find_places(const ChosenPlaces& chosen, AttendingRow& row) const {
    for (int32_t p = std::max(row.position - spec_.window + 1, 0); p <= row.position; ++p) {
      row.window_places.push_back(p);
    }
    if (spec_.compressor.has_index()) {
      const int32_t* const places = chosen.row(row.in_batch);
      row.shared_places.assign(places, places + chosen.count(row.position));
      return;
    }
    const int32_t rate = spec_.compressor.rate;
    for (int32_t p = rate - 1; p <= row.position; p += rate) row.shared_places.push_back(p);
  }

  void attend_rows(const MixerRun& run, const ChosenPlaces& chosen, const AttentionArgs& whole,
                   std::vector<AttendingRow>& rows) const {
    OpContext& context = run.branch.context();
    const Workspace::Mark mark(context.workspace);
    const int32_t tokens = run.kv.block_tokens;
    int32_t keys = 0;
    for (AttendingRow& row : rows) {
      find_places(chosen, row);
      keys = std::max(keys, row.keys());
    }
    const auto blocks = static_cast<int32_t>(divide_up(keys, tokens));
    KvLayerView pages = kv_view(gathered_kv(), {KvFormat::kF32}, KeyLayout::kTransposed, tokens);
    pages.block_stride = layer_part_bytes(pages);
    pages.base = context.workspace.take(pages.block_stride * blocks * std::ssize(rows));
    std::vector<int32_t> table(rows.size() * static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<GatheredRow> of_window, of_shared;
    std::vector<AttentionSequence> sequences;
    for (const AttendingRow& row : rows) {
      const auto first_block = static_cast<int32_t>(sequences.size()) * blocks;
      const auto before = static_cast<int32_t>(row.window_places.size());
      of_window.push_back({.places = row.window_places.data(),
                           .count = before,
                           .block_table = row.own->block_table + run.group.table_offset,
                           .first_block = first_block});
      of_shared.push_back({.places = row.shared_places.data(),
                           .count = static_cast<int32_t>(row.shared_places.size()),
                           .block_table = row.shared->block_table + run.beside.group->table_offset,
                           .first_block = first_block,
                           .before = before});
      sequences.push_back({.row_first = row.in_batch,
                           .row_count = 1,
                           .kv_length = row.keys(),
                           .block_table = table.data() + first_block});
    }
    gather_keys(context, {.from = run.kv, .rows = of_window, .to = pages});
    gather_keys(context, {.from = *run.beside.kv, .rows = of_shared, .to = pages});
    AttentionArgs args = whole;
    args.kv = pages;
    args.sequences = sequences;
    args.table_offset = 0;
    args.window = 0;
    attention(context, args);
  }

  void end_with_groups(const MixerRun& run, const TensorView& seen) const {
    const TensorView all = run.scratch.rows(kGroups, run.branch.rows(), out_.input_width());
    const TensorView own = out_.own_columns(all);
    for (int32_t g = 0; g < spec_.groups; ++g) {
      multiply(run.branch.context(), groups_[static_cast<size_t>(g)],
               column_range(seen, g * group_width(), group_width()),
               column_range(own, int64_t{g} * spec_.group_rank, spec_.group_rank));
    }
    out_.end(run.branch, all);
  }

  CompressedAttentionSpec spec_;  // with this rank's groups, G, of H heads
  const int64_t hidden_;
  const int32_t whole_groups_;  // of all ranks
  int32_t group_first_ = 0;     // of this one
  LinearLayer down_;            // [query_rank + head_dim, D]
  DeviceVector query_norm_;     // [query_rank]
  DeviceVector key_norm_;       // [head_dim]
  DeviceVector head_norm_;      // [head_dim], ones: of queries, which have no weights
  DeviceVector sinks_;          // [heads of all ranks]
  LinearLayer query_up_;        // [H head_dim, query_rank]
  KeyCompressor compressor_;
  std::vector<LinearLayer> groups_;  // [G] of [group_rank, group_width]
  BranchOutput out_;                 // [D, G group_rank]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const CompressedAttentionSpec& spec, int64_t hidden) {
  return std::make_unique<CompressedAttentionMixer>(spec, hidden);
}

}  // namespace headrace
