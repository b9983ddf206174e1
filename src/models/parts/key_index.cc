#include "models/parts/key_index.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/row_views.h"
#include "ops/attention/index_keys.h"
#include "ops/linear/linear.h"

namespace headrace {
namespace {

// The library norms the index's keys with a constant of its own.
constexpr float kIndexNormEps = 1e-6f;

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

Status KeyIndex::load(LayerTensors& tensors) {
  if (!is_here()) return ok_status();
  const int32_t rotated = spec_.rows_interleaved ? rope_dim_ : 0, plain = spec_.dim - rotated;
  const std::vector<int32_t> key = order_of_index(1, rotated, plain);
  HR_ASSIGN_OR_RETURN(norm_, load_in_order(tensors, "indexer.k_norm.weight", key));
  HR_ASSIGN_OR_RETURN(norm_bias_, load_in_order(tensors, "indexer.k_norm.bias", key));
  HR_ASSIGN_OR_RETURN(
      down_,
      tensors.matrix({.rows = {{"indexer.attn_k", spec_.dim, key}, {"indexer.proj", spec_.heads}},
                      .columns = hidden_,
                      .exact = true}));
  HR_ASSIGN_OR_RETURN(query_,
                      tensors.matrix({.rows = {{"indexer.attn_q_b", query_width(),
                                                order_of_index(spec_.heads, rotated, plain)}},
                                      .columns = query_rank_}));
  return ok_status();
}

std::vector<LinearWeight*> KeyIndex::matrices() {
  if (!is_here()) return {};
  return {&down_.weight, &query_.weight};
}

// Queries, the key, what heads are worth, and the places that are chosen where they go no further.
int64_t KeyIndex::scratch_columns() const {
  if (!is_here()) return 0;
  return query_width() + spec_.dim + spec_.heads + (spec_.carried ? 0 : spec_.top);
}

int64_t KeyIndex::op_workspace_bytes(const PartLoad& load) const {
  if (!is_here()) return 0;
  return std::max({linear_workspace_bytes(load.rows, down_.weight),
                   linear_workspace_bytes(load.rows, query_.weight),
                   select_keys_workspace_bytes(load.kv_length_max)});
}

ChosenPlaces KeyIndex::places_in(const TensorView& rows, int64_t column) const {
  return {.front = reinterpret_cast<int32_t*>(f32_row(rows, 0) + column),
          .stride = rows.row_stride / static_cast<int64_t>(sizeof(float)),
          .top = spec_.top};
}

ChosenPlaces KeyIndex::choose(const MixerRun& run, const TensorView& latents,
                              const TensorView& area) const {
  if (!is_here()) return places_in(run.carried, 0);
  OpContext& context = run.branch.context();
  const TensorView queries = column_range(area, 0, query_width());
  const TensorView made = column_range(area, query_width(), spec_.dim + spec_.heads);
  const ChosenPlaces chosen =
      spec_.carried ? places_in(run.carried, 0) : places_in(area, query_width() + made.columns());
  run.branch.multiply_input(down_, made);
  multiply(context, query_, latents, queries);
  const RopeAngles& angles = run.angles[static_cast<size_t>(rope_)];
  index_keys(context, {.keys = column_range(made, 0, spec_.dim),
                       .norm = norm_.data(),
                       .norm_bias = norm_bias_.data(),
                       .norm_eps = kIndexNormEps,
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
                        .chosen = chosen});
  return chosen;
}

}  // namespace headrace
