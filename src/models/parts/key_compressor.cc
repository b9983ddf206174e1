#include "models/parts/key_compressor.h"

#include <algorithm>

#include "models/row_views.h"
#include "ops/attention/compress_keys.h"
#include "ops/linear/linear.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/rotate_tails.h"

namespace headrace {
namespace {

constexpr const char* kHeads = "attn_compress";
constexpr const char* kIndex = "indexer.compress";

// The runs of tokens of which a step has the last one.
std::vector<CompleteRun> complete_runs(const MixerRun& run, int32_t rate) {
  const ForwardBatch::Group &sources = run.group, &keys = *run.beside.group;
  CHECK(sources.sequences.size() == keys.sequences.size());
  std::vector<CompleteRun> runs;
  for (size_t s = 0; s < sources.sequences.size(); ++s) {
    const AttentionSequence& sequence = sources.sequences[s];
    CHECK_MSG(sequence.tree_rows == 0, "rows of trees share no keys");
    const int32_t first = sequence.kv_length - sequence.row_count;
    for (int32_t last = first / rate * rate + rate - 1; last < sequence.kv_length; last += rate) {
      runs.push_back({.last = last,
                      .source_table = sequence.block_table + sources.table_offset,
                      .key_table = keys.sequences[s].block_table + keys.table_offset});
    }
  }
  return runs;
}

}  // namespace

int32_t KeyCompressor::source_dim() const {
  if (!spec_.is_here()) return 0;
  return sources_of(spec_.dim) + (spec_.has_index() ? sources_of(spec_.index_dim) : 0);
}

int64_t KeyCompressor::made_columns() const { return source_dim() + int64_t{spec_.index_heads}; }

// Queries, then the places that are chosen.
int64_t KeyCompressor::index_columns() const {
  return spec_.has_index() ? query_width() + spec_.index_top : 0;
}

void KeyCompressor::add_rows(const std::string& name, int32_t dim, MatrixStack& stack) const {
  stack.rows.push_back({name + "_kv", int64_t{spec_.series()} * dim});
  stack.rows.push_back({name + "_gate", int64_t{spec_.series()} * dim});
}

Status KeyCompressor::load_keys(LayerTensors& tensors, const std::string& name, int32_t dim,
                                Keys& keys) const {
  HR_ASSIGN_OR_RETURN(
      const std::vector<float> bias,
      tensors.values(name + "_ape.weight", Shape{spec_.rate, int64_t{spec_.series()} * dim}));
  HR_ASSIGN_OR_RETURN(keys.bias, tensors.made_vector(bias));
  HR_ASSIGN_OR_RETURN(keys.norm, tensors.vector(name + "_norm.weight", dim));
  return ok_status();
}

Status KeyCompressor::load(LayerTensors& tensors) {
  if (!spec_.is_here()) return ok_status();
  MatrixStack made{.columns = hidden_, .exact = true};
  add_rows(kHeads, spec_.dim, made);
  HR_RETURN_IF_ERROR(load_keys(tensors, kHeads, spec_.dim, of_heads_));
  if (spec_.has_index()) {
    add_rows(kIndex, spec_.index_dim, made);
    made.rows.push_back({"indexer.proj", spec_.index_heads});
    HR_RETURN_IF_ERROR(load_keys(tensors, kIndex, spec_.index_dim, of_index_));
    HR_ASSIGN_OR_RETURN(query_, tensors.matrix({.rows = {{"indexer.attn_q_b", query_width()}},
                                                .columns = spec_.query_rank}));
  }
  HR_ASSIGN_OR_RETURN(made_, tensors.matrix(made));
  return ok_status();
}

std::vector<LinearWeight*> KeyCompressor::matrices() {
  if (!spec_.is_here()) return {};
  if (!spec_.has_index()) return {&made_.weight};
  return {&made_.weight, &query_.weight};
}

int64_t KeyCompressor::op_workspace_bytes(const PartLoad& load) const {
  if (!spec_.is_here()) return 0;
  constexpr int64_t kAlignment = 512;
  const int64_t angles =
      2 * load.rows * std::ssize(spec_.inv_freq) * static_cast<int64_t>(sizeof(float));
  int64_t bytes = std::max(linear_workspace_bytes(load.rows, made_.weight), angles + kAlignment);
  if (spec_.has_index()) {
    bytes = std::max({bytes, linear_workspace_bytes(load.rows, query_.weight),
                      select_keys_workspace_bytes(load.kv_length_max)});
  }
  return bytes;
}

TensorView KeyCompressor::make_sources(const MixerRun& run, const TensorView& made) const {
  run.branch.multiply_input(made_, made);
  return column_range(made, 0, source_dim());
}

void KeyCompressor::compress(const MixerRun& run) const {
  const std::vector<CompleteRun> runs = complete_runs(run, spec_.rate);
  if (runs.empty()) return;
  OpContext& context = run.branch.context();
  const Workspace::Mark mark(context.workspace);
  const Shape shape{std::ssize(runs), std::ssize(spec_.inv_freq)};
  const TensorView cos = context.workspace.take_tensor(DType::kF32, shape);
  const TensorView sin = context.workspace.take_tensor(DType::kF32, shape);
  std::vector<int32_t> firsts;
  for (const CompleteRun& each : runs) firsts.push_back(each.last - spec_.rate + 1);
  rope_angles(context, {.positions = firsts,
                        .inv_freq = spec_.inv_freq,
                        .scale = spec_.angle_scale,
                        .cos = cos,
                        .sin = sin});
  CompressKeysArgs args{.sources = run.kv,
                        .overlaps = spec_.overlaps,
                        .bias = of_heads_.bias.data(),
                        .norm = of_heads_.norm.data(),
                        .norm_eps = spec_.norm_eps,
                        .cos = cos,
                        .sin = sin,
                        .runs = runs,
                        .keys = *run.beside.kv};
  compress_keys(context, args);
  if (!spec_.has_index()) return;
  args.first = sources_of(spec_.dim);
  args.bias = of_index_.bias.data();
  args.norm = of_index_.norm.data();
  args.of_index = true;
  compress_keys(context, args);
}

ChosenPlaces KeyCompressor::choose(const MixerRun& run, const TensorView& latents,
                                   const TensorView& made, const TensorView& area) const {
  OpContext& context = run.branch.context();
  const TensorView queries = column_range(area, 0, query_width());
  const TensorView places = column_range(area, query_width(), spec_.index_top);
  const ChosenPlaces chosen{.front = reinterpret_cast<int32_t*>(places.data),
                            .stride = places.row_stride / static_cast<int64_t>(sizeof(int32_t)),
                            .top = spec_.index_top,
                            .rate = spec_.rate};
  multiply(context, query_, latents, queries);
  const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
  rotate_tails(context,
               {.x = queries, .cos = angles.cos, .sin = angles.sin, .head_dim = spec_.index_dim});
  select_keys(context, {.queries = queries,
                        .weights = column_range(made, source_dim(), spec_.index_heads),
                        .kv = *run.beside.kv,
                        .sequences = run.beside.group->sequences,
                        .table_offset = run.beside.group->table_offset,
                        .chosen = chosen});
  return chosen;
}

}  // namespace headrace
