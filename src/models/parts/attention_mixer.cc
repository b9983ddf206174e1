#include "models/parts/attention_mixer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/branch_output.h"
#include "models/row_views.h"
#include "ops/attention/plan.h"
#include "ops/attention/rope_attention.h"
#include "ops/linear/linear.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/scale_queries.h"
#include "ops/rows/sigmoid_gate.h"
#include "ops/rows/soft_cap.h"

namespace headrace {
namespace {

using RowOrder = std::vector<int32_t>;

// Files of some architectures hold the rows of q and k in the order (pair, half) of the original
// interleaved rotation; ours, as HF's, is (half, pair). Row r of a head comes from file row:
RowOrder half_from_interleaved(int32_t heads, int32_t head_dim, int32_t rope_dim) {
  RowOrder order;
  order.reserve(static_cast<size_t>(heads) * static_cast<size_t>(head_dim));
  const int32_t half = rope_dim / 2;
  for (int32_t head = 0; head < heads; ++head) {
    for (int32_t r = 0; r < head_dim; ++r) {
      order.push_back(head * head_dim + (r < rope_dim ? 2 * (r % half) + r / half : r));
    }
  }
  return order;
}

// Of a tensor that has a head's queries, then its gates: all gates, then all queries.
RowOrder gates_first(int32_t heads, int32_t head_dim) {
  RowOrder order;
  for (const int32_t first : {head_dim, 0}) {
    for (int32_t head = 0; head < heads; ++head) {
      for (int32_t r = 0; r < head_dim; ++r) order.push_back(2 * head * head_dim + first + r);
    }
  }
  return order;
}

// The order of the rows of q, k and v in one matrix.
RowOrder joined(const RowOrder& q, const RowOrder& k, int64_t v_rows) {
  RowOrder order = q;
  const auto q_rows = static_cast<int32_t>(q.size());
  for (const int32_t row : k) order.push_back(q_rows + row);
  const auto before_v = static_cast<int32_t>(order.size());
  for (int32_t row = 0; row < v_rows; ++row) order.push_back(before_v + row);
  return order;
}

KvLayerView cache_of(const AttentionSpec& spec, DType dtype) {
  KvLayerView kv = alike_kv(dtype, KeyLayout::kRows, spec.kv_heads, spec.head_dim);
  kv.v_dim = spec.value_head_dim();
  return kv;
}

bool attention_fits(const DeviceTraits& device, const AttentionSpec& spec, DType dtype) {
  const AttentionPlan plan;
  AttentionArgs args;
  args.q = row_of_no_data(dtype, int64_t{spec.heads} * spec.head_dim);
  args.kv = cache_of(spec, dtype);
  args.plan = &plan;
  args.out = row_of_no_data(dtype, int64_t{spec.heads} * spec.value_head_dim());
  return attention_kernels().find(device, args) != nullptr;
}

bool rotation_fits(const DeviceTraits& device, const AttentionSpec& spec, DType dtype) {
  const int64_t width = int64_t{spec.heads + spec.kv_heads} * spec.head_dim +
                        int64_t{spec.kv_heads} * spec.value_head_dim();
  const TensorView angles = row_of_no_data(DType::kF32, spec.head_dim / 2);
  RopeKvArgs args;
  args.qkv = row_of_no_data(dtype, width);
  args.cos = angles;
  args.sin = angles;
  args.query_heads = spec.heads;
  args.kv = cache_of(spec, dtype);
  return rope_kv_kernels().find(device, args) != nullptr;
}

// Which heads each rank has: key heads with all of their query heads, or, of fewer key heads than
// ranks, one of them with some of its query heads.
struct HeadShares {
  std::vector<int64_t> queries;  // [ranks + 1] their first query heads
  std::vector<int64_t> keys;     // [ranks] their first key heads
  std::vector<int64_t> key_counts;

  // Empty: there are too few heads.
  static std::optional<HeadShares> of(const AttentionSpec& spec, int64_t ranks) {
    const int64_t group = spec.heads / spec.kv_heads;
    HeadShares shares;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t key = rank * spec.kv_heads / ranks;
      const int64_t next = (rank + 1) * spec.kv_heads / ranks;
      shares.keys.push_back(key);
      shares.key_counts.push_back(std::max<int64_t>(next - key, 1));
      if (spec.kv_heads >= ranks) {
        shares.queries.push_back(key * group);
        continue;
      }
      // The ranks of one key head are neighbours.
      const int64_t first = (key * ranks + spec.kv_heads - 1) / spec.kv_heads;
      const int64_t end = ((key + 1) * ranks + spec.kv_heads - 1) / spec.kv_heads;
      if (end - first > group) return std::nullopt;
      shares.queries.push_back(key * group + group * (rank - first) / (end - first));
    }
    shares.queries.push_back(spec.heads);
    return shares;
  }
};

// Of a tensor that has the queries of a key head, its keys and its values, then the next one's: all
// queries, all keys, all values. `group`: the query heads of a key head.
RowOrder parts_first(int32_t kv_heads, int32_t group, int32_t head_dim) {
  RowOrder order;
  const auto add = [&](int32_t key_head, int32_t first, int32_t heads) {
    const int32_t row = (key_head * (group + 2) + first) * head_dim;
    for (int32_t r = 0; r < heads * head_dim; ++r) order.push_back(row + r);
  };
  for (int32_t head = 0; head < kv_heads; ++head) add(head, 0, group);
  for (int32_t head = 0; head < kv_heads; ++head) add(head, group, 1);
  for (int32_t head = 0; head < kv_heads; ++head) add(head, group + 1, 1);
  return order;
}

// Columns of a row of this rank's heads.
struct RowWidths {
  explicit RowWidths(const AttentionSpec& spec)
      : q(int64_t{spec.heads} * spec.head_dim),
        k(int64_t{spec.kv_heads} * spec.head_dim),
        v(int64_t{spec.kv_heads} * spec.value_head_dim()),
        seen(int64_t{spec.heads} * spec.value_head_dim()),
        gates(!spec.gated           ? 0
              : spec.gates.of_heads ? spec.heads
                                    : seen),
        relative(int64_t{spec.heads} * spec.near.profiles),
        kept(spec.keys_of >= 0 ? 0 : k + v),
        projected(gates + relative + q + kept) {}
  int64_t beside() const { return gates + relative; }  // before queries
  int64_t q, k, v;
  int64_t seen;       // what heads see, of each as many components as values have
  int64_t gates;      // 0: there are none
  int64_t relative;   // numbers of profiles of distances
  int64_t kept;       // of the keys and values that it makes
  int64_t projected;  // gates, numbers of profiles, queries, keys, values
};

class AttentionMixer final : public Mixer {
 public:
  AttentionMixer(const AttentionSpec& spec, int64_t hidden)
      : spec_(spec),
        input_(spec.input > 0 ? spec.input : hidden),
        whole_(spec),
        near_(spec.near),
        index_(spec.index, hidden, spec.rope),
        out_(RowWidths(spec).seen, hidden) {
    CHECK(spec.near.profiles == 0 || spec.qkv == QkvTensors::kSeparate);
    CHECK(!index_.is_here() || ((index_.pools() || spec.index.heads == spec.kv_heads) &&
                                spec.window == 0 && spec.chunk == 0 && spec.keys_of < 0));
  }

  // Heads that cannot be shared out are computed by every rank, all of them.
  Status split(const ShardSpec& shard) override {
    const std::optional<HeadShares> heads = HeadShares::of(whole_, shard.ranks);
    if (!heads || spec_.qk_norm == QkNorm::kRow || spec_.sub_norm) return ok_status();
    std::vector<int64_t> columns;
    for (const int64_t head : heads->queries) columns.push_back(head * spec_.value_head_dim());
    out_.split(shard, Shares(std::move(columns)));
    if (shard.all_on_one) return ok_status();
    const auto rank = static_cast<size_t>(shard.rank);
    query_first_ = heads->queries[rank];
    key_first_ = heads->keys[rank];
    spec_.heads = static_cast<int32_t>(heads->queries[rank + 1] - query_first_);
    spec_.kv_heads = static_cast<int32_t>(heads->key_counts[rank]);
    if (index_.is_here()) index_.take(static_cast<int32_t>(key_first_), spec_.kv_heads);
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(qkv_, tensors.matrix(qkv_stack()));
    if (spec_.bare_qk_norm || spec_.qk_norm == QkNorm::kHeadBehind) {
      HR_ASSIGN_OR_RETURN(q_norm_, tensors.constant(dim(), 1.0f));
      HR_ASSIGN_OR_RETURN(k_norm_, tensors.constant(dim(), 1.0f));
    } else if (spec_.qk_norm == QkNorm::kHead || spec_.qk_norm == QkNorm::kRow) {
      const bool rows = spec_.qk_norm == QkNorm::kRow;
      HR_ASSIGN_OR_RETURN(q_norm_, tensors.vector("attn_q_norm.weight", rows ? widths().q : dim()));
      if (!reads_keys()) {
        HR_ASSIGN_OR_RETURN(k_norm_,
                            tensors.vector("attn_k_norm.weight", rows ? widths().k : dim()));
      }
    }
    if (norms_by_layer()) HR_RETURN_IF_ERROR(load_layer_norms(tensors));
    if (spec_.value_norm) {
      HR_ASSIGN_OR_RETURN(v_norm_, tensors.constant(dim(), 1.0f));
    }
    if (weighs_behind()) HR_RETURN_IF_ERROR(join_norms(tensors));
    if (spec_.sinks) {
      HR_ASSIGN_OR_RETURN(sinks_, tensors.vector("attn_sinks.weight", whole_.heads));
    }
    if (spec_.alibi_bias_max > 0) {
      const std::vector<float> slopes = alibi_slopes(whole_.heads, spec_.alibi_bias_max);
      HR_ASSIGN_OR_RETURN(slopes_, tensors.made_vector(slopes));
    }
    if (spec_.sub_norm) {
      HR_ASSIGN_OR_RETURN(sub_norm_, tensors.vector("attn_sub_norm.weight", widths().seen));
    }
    HR_RETURN_IF_ERROR(load_near_keys(tensors));
    HR_RETURN_IF_ERROR(index_.load(tensors));
    return out_.load(tensors, "attn_output", spec_.out_bias);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&qkv_.weight};
    for (LinearWeight* const of_index : index_.matrices()) all.push_back(of_index);
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }
  LayerKv kept() const override {
    if (reads_keys()) return {};
    return {.kv_heads = spec_.kv_heads,
            .k_dim = spec_.head_dim,
            .v_dim = spec_.value_head_dim(),
            .window = spec_.window,
            .chunk = spec_.chunk,
            .index_dim = index_.dim()};
  }
  int64_t state_bytes() const override { return near_.state_bytes(widths().kept); }
  int32_t query_heads() const override { return spec_.heads; }
  int32_t keys_of() const override { return spec_.keys_of; }
  std::vector<int64_t> scratch_columns(bool) const override {
    std::vector<int64_t> columns = {widths().projected, out_width()};
    if (widths().beside() > 0 || index_.is_here()) {
      columns.push_back(std::max<int64_t>(widths().beside(), 1));
    }
    if (index_.is_here()) columns.push_back(index_.scratch_columns());
    return columns;
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(
        {attention_workspace_bytes(load.thread_count, spec_.value_head_dim(), load.kv_length_max),
         linear_workspace_bytes(load.rows, qkv_.weight), out_.op_workspace_bytes(load.rows),
         index_.op_workspace_bytes(load, kept())});
  }

  Status check_device(const DeviceTraits& device, DType activations) const override {
    const auto heads_fit = [&](int64_t head_dim) {
      AttentionSpec of_size = spec_;
      of_size.head_dim = static_cast<int32_t>(head_dim);
      return attention_fits(device, of_size, activations) &&
             rotation_fits(device, of_size, activations);
    };
    HR_RETURN_IF_ERROR(near_.check_device(device));
    if (heads_fit(spec_.head_dim)) return index_.check_device(device);
    return unsupported(
        fmt::format("attention heads of {} are larger than kernels on a GPU take, which is {}: use "
                    "--device cpu",
                    spec_.head_dim, largest_that_fits(spec_.head_dim, heads_fit)));
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    OpContext& context = run.branch.context();
    const TensorView projected = run.scratch.rows(kProjected, rows, widths().projected);
    const TensorView qkv = column_range(projected, widths().beside(), widths().q + widths().kept);
    const TensorView q = column_range(qkv, 0, widths().q);
    run.branch.multiply_input(qkv_, projected);
    if (run.addition != nullptr) {
      run.addition->addition->add(context, run.branch.input(), qkv, run.addition->low);
    }
    if (spec_.qkv_clamp > 0) {
      soft_cap(context, {.x = qkv, .cap = spec_.qkv_clamp, .kind = CapKind::kClamp});
    }
    near_.convolve(context, run.states, column_range(qkv, widths().q, widths().kept));
    normalise_whole_rows(context, qkv);
    normalise_heads(context, qkv);
    normalise_values(context, qkv);
    if (!tunes_behind()) tune_queries(run, projected);
    const RopeKvArgs rope = rotation(run, qkv);
    const TensorView out = run.scratch.rows(kOut, rows, out_.input_width());
    if (run.kept != nullptr && !index_.is_here()) return attend_kept(run, rope, projected);
    const AttentionArgs attention =
        attention_of(run, run.group, q, projected, out_.own_columns(out));
    if (index_.is_here()) {
      rope_kv(context, rope);
      weigh_queries(run, q);
      index_.attend(run, kept(), attention,
                    run.scratch.rows(kIndex, rows, index_.scratch_columns()));
    } else if (weighs_behind() || reads_keys() || tunes_behind()) {
      rope_kv(context, rope);
      weigh_queries(run, q);
      if (tunes_behind()) tune_queries(run, projected);
      headrace::attention(context, attention);
    } else {
      rope_attention(context, {.rope = rope, .attention = attention});
    }
    gate_heads(context, out_.own_columns(out), projected);
    normalise_seen(context, out);
    out_.end(run.branch, out);
  }

 private:
  enum Area : size_t { kProjected, kOut, kKeptBeside, kIndex };  // of scratch memory

  // All rows are kept in the cache, those that are read attend. Their queries lie in the second
  // half of the area, what is computed of them in the first.
  void attend_kept(const MixerRun& run, const RopeKvArgs& rope, const TensorView& projected) const {
    OpContext& context = run.branch.context();
    const std::span<const int32_t> rows = run.kept->rows;
    const TensorView area = run.scratch.rows(kOut, run.branch.rows(), out_width());
    const TensorView q = column_range(projected, widths().beside(), widths().q);
    rope_kv(context, rope);
    if (rows.empty()) return;
    weigh_queries(run, q);
    if (tunes_behind()) tune_queries(run, projected);
    run.branch.keep_rows(rows);
    const int64_t kept = run.branch.rows();
    const TensorView kept_q = column_range(area.row_range(area.rows() - kept, kept), 0, widths().q);
    const TensorView out = run.scratch.rows(kOut, kept, out_.input_width());
    row_gather(context, {.x = q, .rows = rows, .out = kept_q});
    TensorView beside;
    if (widths().beside() > 0) {
      beside = run.scratch.rows(kKeptBeside, kept, widths().beside());
      const TensorView of_all = column_range(projected, 0, widths().beside());
      row_gather(context, {.x = of_all, .rows = rows, .out = beside});
    }
    attention(context, attention_of(run, run.kept->group, kept_q, beside, out_.own_columns(out)));
    gate_heads(context, out_.own_columns(out), beside);
    normalise_seen(context, out);
    out_.end(run.branch, out);
  }

  int64_t dim() const { return spec_.head_dim; }
  bool reads_keys() const { return spec_.keys_of >= 0; }
  RowWidths widths() const { return RowWidths(spec_); }
  // Of the area of what heads see, where queries may lie, too.
  int64_t out_width() const { return std::max(out_.input_width(), widths().q); }

  // The order of the rows of so many heads in the file; empty: it is ours.
  RowOrder rotated_rows(int32_t heads) const {
    if (!spec_.qk_rows_interleaved) return {};
    const int32_t rope_dim = spec_.rope_dim > 0 ? spec_.rope_dim : spec_.head_dim;
    return half_from_interleaved(heads, spec_.head_dim, rope_dim);
  }

  MatrixStack qkv_stack() const {
    RowOrder q = rotated_rows(spec_.heads), k = rotated_rows(spec_.kv_heads);
    MatrixStack stack{.columns = input_, .bias = spec_.qkv_bias, .adapts = true};
    if (spec_.qkv == QkvTensors::kFusedByHead) {
      stack.rows = rows_by_head();
      return stack;
    }
    if (spec_.qkv == QkvTensors::kFusedByQuarter) {
      stack.rows = rows_by_quarter();
      return stack;
    }
    const bool all_heads = spec_.heads == whole_.heads;
    if (spec_.qkv == QkvTensors::kFused && all_heads) {
      RowOrder all = spec_.qk_rows_interleaved ? joined(q, k, widths().v) : RowOrder();
      stack.rows = {{"attn_qkv", widths().q + widths().k + widths().v, std::move(all)}};
      return stack;
    }
    const int64_t queries = int64_t{whole_.heads} * dim(), keys = int64_t{whole_.kv_heads} * dim();
    const int64_t values = whole_.kv_heads * spec_.value_head_dim();
    const int64_t query = query_first_ * dim(), key = key_first_ * dim();
    const int64_t value = key_first_ * spec_.value_head_dim();
    if (spec_.qkv == QkvTensors::kFused) {
      const int64_t of = queries + keys + values;
      stack.rows = {{"attn_qkv", widths().q, std::move(q), query, of},
                    {"attn_qkv", widths().k, std::move(k), queries + key, of},
                    {"attn_qkv", widths().v, {}, queries + keys + value, of}};
    } else {
      stack.rows = {{"attn_q", widths().q, std::move(q), query, queries},
                    {"attn_k", widths().k, std::move(k), key, keys},
                    {spec_.values_are_keys ? "attn_k" : "attn_v", widths().v, {}, value, values}};
      if (reads_keys()) stack.rows.resize(1);
    }
    if (spec_.near.profiles > 0) {
      stack.rows.insert(stack.rows.begin(), {.name = "attn_rel",
                                             .count = widths().relative,
                                             .first = query_first_ * spec_.near.profiles,
                                             .of = int64_t{whole_.heads} * spec_.near.profiles,
                                             .bare = true});
    }
    if (spec_.gates.apart) {
      const int64_t of_head = widths().gates / spec_.heads;
      stack.rows.insert(stack.rows.begin(), {.name = "attn_gate",
                                             .count = widths().gates,
                                             .first = query_first_ * of_head,
                                             .of = whole_.heads * of_head,
                                             .bare = true});
    } else if (spec_.gated) {
      stack.rows.front() = {"attn_q", 2 * widths().q, gates_first(spec_.heads, spec_.head_dim),
                            2 * query, 2 * queries};
    }
    return stack;
  }

  // A rank has key heads with all of their query heads, which are neighbours, or some of the query
  // heads of one. REQUIRES: rows are in the order of our rotation
  std::vector<MatrixStack::Rows> rows_by_head() const {
    const int64_t group = whole_.heads / whole_.kv_heads;
    const int64_t of = (group + 2) * whole_.kv_heads * dim();
    const int64_t first = (group + 2) * key_first_ * dim();
    if (spec_.heads == group * spec_.kv_heads) {
      return {{"attn_qkv", widths().q + 2 * widths().k,
               parts_first(spec_.kv_heads, static_cast<int32_t>(group), spec_.head_dim), first,
               of}};
    }
    const int64_t query = query_first_ - key_first_ * group;  // in the group
    return {{"attn_qkv", widths().q, {}, first + query * dim(), of},
            {"attn_qkv", widths().k, {}, first + group * dim(), of},
            {"attn_qkv", widths().k, {}, first + (group + 1) * dim(), of}};
  }

  // As many key heads as query heads. In a quarter, part 0 is the queries of its heads, 1 their
  // values, 2 their keys.
  std::vector<MatrixStack::Rows> rows_by_quarter() const {
    constexpr int32_t kQuarters = 4, kQueries = 0, kValues = 1, kKeys = 2;
    const int32_t in_quarter = whole_.heads / kQuarters;
    const int32_t begin = static_cast<int32_t>(query_first_), end = begin + spec_.heads;
    std::vector<MatrixStack::Rows> rows;
    for (const int32_t part : {kQueries, kKeys, kValues}) {
      for (int32_t head = begin; head < end;) {
        const int32_t quarter = head / in_quarter;
        const int32_t heads = std::min(end, (quarter + 1) * in_quarter) - head;
        const int32_t at = (3 * quarter + part) * in_quarter + head % in_quarter;
        rows.push_back({"attn_qkv", heads * dim(),
                        part == kValues ? RowOrder() : rotated_rows(heads), at * dim(),
                        3 * int64_t{whole_.heads} * dim()});
        head += heads;
      }
    }
    return rows;
  }

  // Norms of q and k that are over all heads of a row; those over a head are the rotation's.
  void normalise_whole_rows(OpContext& context, const TensorView& qkv) const {
    if (spec_.qk_norm != QkNorm::kRow) return;
    normalise_row(context, q_norm_, column_range(qkv, 0, widths().q));
    normalise_row(context, k_norm_, column_range(qkv, widths().q, widths().k));
  }
  bool norms_by_layer() const {
    return spec_.qk_norm == QkNorm::kHeadLayer || spec_.qk_norm == QkNorm::kEachLayer;
  }
  // Of this rank's heads, [query and key heads, d], in the order of our rotation.
  Status load_layer_norms(LayerTensors& tensors) {
    const struct {
      const char* name;
      int32_t heads, all;
      int64_t first;
    } norms[] = {{"attn_q_norm", spec_.heads, whole_.heads, query_first_},
                 {"attn_k_norm", spec_.kv_heads, whole_.kv_heads, key_first_}};
    std::vector<float> weights, biases;
    const bool each = spec_.qk_norm == QkNorm::kEachLayer;
    for (const auto& norm : norms) {
      const Shape shape = each ? Shape{norm.all, dim()} : Shape{dim()};
      const std::string name = norm.name;
      HR_ASSIGN_OR_RETURN(const std::vector<float> weight, tensors.values(name + ".weight", shape));
      std::vector<float> bias(weight.size(), 0.0f);
      if (!each) {
        HR_ASSIGN_OR_RETURN(bias, tensors.values(name + ".bias", shape));
      }
      const RowOrder order = rotated_rows(norm.heads);
      for (int64_t r = 0; r < norm.heads * dim(); ++r) {
        int64_t from = order.empty() ? r : order[static_cast<size_t>(r)];
        from = each ? norm.first * dim() + from : from % dim();
        weights.push_back(weight[static_cast<size_t>(from)]);
        biases.push_back(bias[static_cast<size_t>(from)]);
      }
    }
    HR_ASSIGN_OR_RETURN(head_norms_, tensors.made_vector(weights));
    HR_ASSIGN_OR_RETURN(head_norm_biases_, tensors.made_vector(biases));
    return ok_status();
  }
  void normalise_heads(OpContext& context, const TensorView& qkv) const {
    if (!norms_by_layer()) return;
    const TensorView rows = column_range(qkv, 0, widths().q + widths().k);
    layer_norm(context, {.x = rows,
                         .residual = {},
                         .weight = head_norms_.data(),
                         .bias = head_norm_biases_.data(),
                         .eps = spec_.qk_norm_eps,
                         .out = rows,
                         .groups = spec_.heads + spec_.kv_heads});
  }
  // Of norms behind the rotation both weights go to the queries, behind it: a head is divided by
  // its size before it is rotated, which is the same.
  bool weighs_behind() const { return spec_.qk_norm == QkNorm::kHeadBehind && !spec_.bare_qk_norm; }
  Status join_norms(LayerTensors& tensors) {
    HR_ASSIGN_OR_RETURN(std::vector<float> both,
                        tensors.values("attn_q_norm.weight", Shape{dim()}));
    HR_ASSIGN_OR_RETURN(const std::vector<float> of_keys,
                        tensors.values("attn_k_norm.weight", Shape{dim()}));
    for (size_t i = 0; i < both.size(); ++i) both[i] *= of_keys[i];
    HR_ASSIGN_OR_RETURN(query_weights_, tensors.made_vector(both));
    return ok_status();
  }
  // Where keys are kept mixed, queries have been too: mixed again they are as they were.
  void weigh_queries(const MixerRun& run, const TensorView& q) const {
    if (!weighs_behind()) return;
    const bool mixed = mixes_keys(run.kv.k_format);
    if (mixed) mix_queries(run, q);
    scale_queries(run.branch.context(),
                  {.x = q, .weights = query_weights_.data(), .head_dim = spec_.head_dim});
    if (mixed) mix_queries(run, q);
  }
  // rope_kv of no keys and no angles.
  void mix_queries(const MixerRun& run, const TensorView& q) const {
    const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
    KvLayerView kv = run.kv;
    kv.kv_heads = 0;
    rope_kv(run.branch.context(), {.qkv = q,
                                   .cos = column_range(angles.cos, 0, 0),
                                   .sin = column_range(angles.sin, 0, 0),
                                   .query_heads = spec_.heads,
                                   .kv = kv,
                                   .slots = run.group.slots});
  }
  void normalise_values(OpContext& context, const TensorView& qkv) const {
    if (!spec_.value_norm || reads_keys()) return;
    normalise_row(context, v_norm_, column_range(qkv, widths().q + widths().k, widths().v),
                  spec_.kv_heads);
  }
  // `beside`: rows that begin with what lies before queries; of gates the first columns.
  void gate_heads(OpContext& context, const TensorView& seen, const TensorView& beside) const {
    if (!spec_.gated) return;
    const TensorView gate = column_range(beside, 0, widths().gates);
    sigmoid_gate(context, {.x = seen, .gate = gate, .kind = spec_.gates.kind});
  }
  void normalise_seen(OpContext& context, const TensorView& seen) const {
    if (spec_.sub_norm) normalise_row(context, sub_norm_, seen);
  }
  // Of queries, and of the numbers before them. REQUIRES: no norm of queries follows
  void tune_queries(const MixerRun& run, const TensorView& projected) const {
    if (spec_.temperature.scale == 0) return;
    const TensorView tuned =
        column_range(projected, widths().gates, widths().relative + widths().q);
    scale_queries(run.branch.context(),
                  {.x = tuned, .temperature = spec_.temperature, .positions = run.positions});
  }
  // Behind the norms of heads, which rope_kv has.
  bool tunes_behind() const { return spec_.temperature.scale != 0 && normalises_heads(); }
  Status load_near_keys(LayerTensors& tensors) {
    const int64_t values = spec_.value_head_dim();
    return near_.load(tensors, {widths().k, key_first_ * dim(), whole_.kv_heads * dim()},
                      {widths().v, key_first_ * values, whole_.kv_heads * values});
  }
  void normalise_row(OpContext& context, const DeviceVector& weight, const TensorView& rows,
                     int32_t groups = 1) const {
    rms_norm(context, {.x = rows,
                       .residual = {},
                       .weight = weight.data(),
                       .eps = spec_.qk_norm_eps,
                       .out = rows,
                       .groups = groups});
  }

  RopeKvArgs rotation(const MixerRun& run, const TensorView& qkv) const {
    const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
    KvLayerView kv = run.kv;
    if (reads_keys()) kv.kv_heads = 0;  // of queries alone
    return {.qkv = qkv,
            .cos = angles.cos,
            .sin = angles.sin,
            .style = RopeStyle::kHalf,
            .query_heads = spec_.heads,
            .kv = kv,
            .slots = run.group.slots,
            .q_norm = normalises_heads() ? q_norm_.data() : nullptr,
            .k_norm = key_norm(),
            .norm_eps = spec_.qk_norm_eps};
  }

  // Whether rope_kv does.
  bool normalises_heads() const {
    return spec_.qk_norm == QkNorm::kHead || spec_.qk_norm == QkNorm::kHeadBehind;
  }
  // What it norms keys by; of no keys something that is there.
  const float* key_norm() const {
    if (!normalises_heads()) return nullptr;
    return reads_keys() ? q_norm_.data() : k_norm_.data();
  }

  AttentionArgs attention_of(const MixerRun& run, const ForwardBatch::Group& group,
                             const TensorView& q, const TensorView& beside,
                             const TensorView& out) const {
    return {.q = q,
            .kv = run.kv,
            .sequences = group.sequences,
            .table_offset = group.table_offset,
            .scale = spec_.scale,
            .window = spec_.window,
            .chunk = spec_.chunk,
            .soft_cap = spec_.soft_cap,
            .f32_products = qkv_.weight.compute() != LinearCompute::kFast,
            .sinks = spec_.sinks ? sinks_.data() + query_first_ : nullptr,
            .slopes = slopes_.data() == nullptr ? nullptr : slopes_.data() + query_first_,
            .relative = near_.bias(beside, widths().gates, widths().relative),
            .plan = group.plan,
            .out = out};
  }

  AttentionSpec spec_;  // with this rank's heads
  const int64_t input_;
  const AttentionSpec whole_;  // with those of all ranks
  int64_t query_first_ = 0;    // of this rank's heads
  int64_t key_first_ = 0;
  LinearLayer qkv_;             // [(Hq + 2 Hkv) d, input]; with gates, [(2 Hq + 2 Hkv) d, input]
  DeviceVector q_norm_;         // [d] of kHead and kHeadBehind, [Hq d] of kRow
  DeviceVector k_norm_;         // [d] of kHead and kHeadBehind, [Hkv d] of kRow
  DeviceVector query_weights_;  // [d] of norms behind the rotation, or empty
  DeviceVector head_norms_, head_norm_biases_;  // [(Hq + Hkv) d] of LayerNorms, or empty
  DeviceVector v_norm_;                         // [d] of 1, or empty
  DeviceVector sub_norm_;                       // [Hq d], or empty
  DeviceVector sinks_;                          // [heads of all ranks], or empty
  DeviceVector slopes_;                         // [heads of all ranks] or empty
  NearKeys near_;
  BlockIndex index_;
  BranchOutput out_;  // [D, Hq d]
};

}  // namespace

std::vector<float> alibi_slopes(int32_t heads, float bias_max) {
  const auto lower = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(heads)));
  std::vector<float> slopes;
  const auto add = [&](double exponent) {
    slopes.push_back(static_cast<float>(std::exp2(-exponent * double{bias_max} / lower)));
  };
  for (int32_t h = 0; h < lower; ++h) add(h + 1);
  for (int32_t h = 0; h < heads - lower; ++h) add(h + 0.5);
  return slopes;
}

std::unique_ptr<Mixer> make_part(const AttentionSpec& spec, int64_t hidden) {
  return std::make_unique<AttentionMixer>(spec, hidden);
}

}  // namespace headrace
