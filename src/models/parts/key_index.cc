#include "models/parts/key_index.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/row_views.h"
#include "ops/attention/index_keys.h"
#include "ops/attention/plan.h"
#include "ops/linear/linear.h"

namespace headrace {
namespace {

// `heads` times `rotated` rows, of which (half, pair) takes the place of (pair, half), then `plain`
// as they are.
std::vector<int32_t> order_of_index(int32_t heads, int32_t rotated, int32_t plain) {
  std::vector<int32_t> order;
  const int32_t half = rotated / 2;
  for (int32_t head = 0; head < heads; ++head) {
    const int32_t first = head * (rotated + plain);
    for (int32_t r = 0; r < rotated; ++r) order.push_back(first + 2 * (r % half) + r / half);
    for (int32_t r = rotated; r < rotated + plain; ++r) order.push_back(first + r);
  }
  return order;
}

Result<DeviceVector> load_in_order(LayerTensors& tensors, const std::string& name,
                                   const std::vector<int32_t>& order) {
  HR_ASSIGN_OR_RETURN(const std::vector<float> values,
                      tensors.values(name, Shape{std::ssize(order)}));
  std::vector<float> ordered;
  for (const int32_t from : order) ordered.push_back(values[static_cast<size_t>(from)]);
  return tensors.made_vector(ordered);
}

}  // namespace

Status KeyIndex::check_device(const DeviceTraits& device, DType activations) const {
  if (device.kind == DeviceKind::kCpu || !is_here()) return ok_status();
  AttentionPlan plan;
  plan.shape.lists_rows = true;
  SelectKeysArgs args;
  args.queries = row_of_no_data(activations, query_width());
  args.weights = row_of_no_data(DType::kF32, spec_.heads);
  args.kv.k_format = kv_format(activations);
  args.kv.index_dim = spec_.dim;
  args.plan = &plan;
  if (select_keys_kernels().find(device, args) != nullptr) return ok_status();
  return unsupported(
      fmt::format("an index of {} heads of {} has no kernels on a GPU: use --device cpu",
                  spec_.heads, spec_.dim));
}

Status KeyIndex::load(LayerTensors& tensors) {
  on_gpu_ = tensors.on_gpu();
  if (!is_here()) return ok_status();
  const std::vector<int32_t> key = order_of_heads(1);
  HR_ASSIGN_OR_RETURN(norm_, load_in_order(tensors, "indexer.k_norm.weight", key));
  HR_ASSIGN_OR_RETURN(norm_bias_, load_in_order(tensors, "indexer.k_norm.bias", key));
  HR_ASSIGN_OR_RETURN(
      down_,
      tensors.matrix({.rows = {{"indexer.attn_k", spec_.dim, key}, {"indexer.proj", spec_.heads}},
                      .columns = hidden_,
                      .exact = true}));
  HR_ASSIGN_OR_RETURN(
      query_,
      tensors.matrix({.rows = {{"indexer.attn_q_b", query_width(), order_of_heads(spec_.heads)}},
                      .columns = query_rank_}));
  return ok_status();
}

std::vector<int32_t> KeyIndex::order_of_heads(int32_t heads) const {
  const int32_t rotated = spec_.rows_interleaved ? rope_dim_ : 0;
  if (!spec_.rotated_last) return order_of_index(heads, rotated, spec_.dim - rotated);
  std::vector<int32_t> order;
  for (int32_t i = 0; i < heads * spec_.dim; ++i) {
    const int32_t first = i - i % spec_.dim;
    order.push_back(first + (i % spec_.dim + spec_.dim - rope_dim_) % spec_.dim);
  }
  return order;
}

std::vector<LinearWeight*> KeyIndex::matrices() {
  if (!is_here()) return {};
  return {&down_.weight, &query_.weight};
}

// Columns that so many numbers of 32 bits take: on a GPU a column may have 16, and rows start on 16
// bytes whatever they hold.
int64_t KeyIndex::number_columns(int64_t count) const {
  constexpr int64_t kAligned = 8;
  return on_gpu_ ? (2 * count + kAligned - 1) / kAligned * kAligned : count;
}

// Queries, the key and what heads are worth, and the places that are chosen where they go no
// further.
KeyIndex::Area KeyIndex::area() const {
  constexpr int64_t kAligned = 8;
  const int64_t queries =
      on_gpu_ ? (query_width() + kAligned - 1) / kAligned * kAligned : query_width();
  const int64_t chosen = queries + number_columns(spec_.dim + spec_.heads);
  return {.made = queries,
          .chosen = chosen,
          .end = chosen + (spec_.carried ? 0 : number_columns(spec_.top))};
}

int64_t KeyIndex::scratch_columns() const { return is_here() ? area().end : 0; }

int64_t KeyIndex::op_workspace_bytes(const PartLoad& load) const {
  if (!is_here()) return 0;
  const int64_t select_bytes = on_gpu_
                                   ? select_keys_cuda_workspace_bytes(load.rows, load.kv_length_max)
                                   : select_keys_workspace_bytes(load.kv_length_max);
  return std::max({linear_workspace_bytes(load.rows, down_.weight),
                   linear_workspace_bytes(load.rows, query_.weight), select_bytes});
}

ChosenPlaces KeyIndex::places_in(const TensorView& rows, int64_t column) const {
  std::byte* const front = rows.data + column * dtype_info(rows.dtype).block_bytes;
  return {.front = reinterpret_cast<int32_t*>(front),
          .stride = rows.row_stride / static_cast<int64_t>(sizeof(int32_t)),
          .top = spec_.top};
}

ChosenPlaces KeyIndex::choose(const MixerRun& run, const TensorView& latents,
                              const TensorView& area) const {
  if (!is_here()) return places_in(run.carried, 0);
  OpContext& context = run.branch.context();
  const Area places = this->area();
  const TensorView queries = column_range(area, 0, query_width());
  // In f32, whatever the type of activations is.
  const TensorView made(area.data + places.made * dtype_info(area.dtype).block_bytes, DType::kF32,
                        Shape{area.rows(), int64_t{spec_.dim} + spec_.heads}, area.row_stride);
  const ChosenPlaces chosen =
      spec_.carried ? places_in(run.carried, 0) : places_in(area, places.chosen);
  run.branch.multiply_input(down_, made);
  multiply(context, query_, latents, queries);
  const RopeAngles& angles = run.angles[static_cast<size_t>(rope_)];
  index_keys(context, {.keys = column_range(made, 0, spec_.dim),
                       .norm = norm_.data(),
                       .norm_bias = norm_bias_.data(),
                       .norm_eps = spec_.norm_eps,
                       .queries = queries,
                       .cos = angles.cos,
                       .sin = angles.sin,
                       .cache = run.kv,
                       .slots = run.group.slots});
  select_keys(context, {.queries = queries,
                        .weights = column_range(made, spec_.dim, spec_.heads),
                        .kv = run.kv,
                        .sequences = run.group.sequences,
                        .table_offset = run.group.table_offset,
                        .chosen = chosen,
                        .plan = run.group.plan});
  return chosen;
}

}  // namespace headrace
