#include "models/parts/latent_attention_mixer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/branch_output.h"
#include "models/row_views.h"
#include "ops/attention/gather_keys.h"
#include "ops/attention/latent_kv.h"
#include "ops/attention/plan.h"
#include "ops/linear/head_linear.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/sigmoid_gate.h"

namespace headrace {
namespace {

using RowOrder = std::vector<int32_t>;

// `heads` times `plain` rows as they are, then `rotated` of which (half, pair) takes the place of
// (pair, half).
RowOrder order_of_heads(int32_t heads, int32_t plain, int32_t rotated) {
  RowOrder order;
  const int32_t half = rotated / 2;
  for (int32_t head = 0; head < heads; ++head) {
    const int32_t first = head * (plain + rotated);
    for (int32_t r = 0; r < plain; ++r) order.push_back(first + r);
    for (int32_t r = 0; r < rotated; ++r) {
      order.push_back(first + plain + 2 * (r % half) + r / half);
    }
  }
  return order;
}

// A latent is multiplied by a number as its norm's weights are.
Result<DeviceVector> load_latent_norm(LayerTensors& tensors, const LatentAttentionSpec& spec) {
  constexpr const char* kName = "attn_kv_a_norm.weight";
  if (spec.latent_scale == 1.0f) return tensors.vector(kName, spec.rank);
  HR_ASSIGN_OR_RETURN(std::vector<float> weight, tensors.values(kName, Shape{spec.rank}));
  for (float& value : weight) value *= spec.latent_scale;
  return tensors.made_vector(weight);
}

// Of a tensor that has a head's query, then its gates: all queries, then all gates.
RowOrder queries_before_gates(const LatentAttentionSpec& spec) {
  const int32_t of_head = spec.query_dim() + spec.gate_dim;
  RowOrder query(static_cast<size_t>(spec.query_dim()));
  std::iota(query.begin(), query.end(), 0);
  if (spec.rows_interleaved) query = order_of_heads(1, spec.plain_dim, spec.rope_dim);
  RowOrder order;
  for (int32_t head = 0; head < spec.heads; ++head) {
    for (const int32_t row : query) order.push_back(head * of_head + row);
  }
  for (int32_t head = 0; head < spec.heads; ++head) {
    for (int32_t r = spec.query_dim(); r < of_head; ++r) order.push_back(head * of_head + r);
  }
  return order;
}

// Columns of a row of this rank's heads.
struct LatentWidths {
  explicit LatentWidths(const LatentAttentionSpec& spec)
      : query(int64_t{spec.heads} * spec.query_dim()),
        absorbed(int64_t{spec.heads} * spec.kept_dim()),
        latent(int64_t{spec.heads} * spec.rank),
        value(int64_t{spec.heads} * spec.value_dim),
        gates(int64_t{spec.heads} * spec.gate_dim),
        gates_beside(spec.query_and_gates ? gates : 0),
        latent_beside(spec.query_and_gates ? spec.query_rank : 0),
        query_input(latent_beside + spec.query_rank),
        query_part(spec.query_rank > 0 ? spec.query_rank : query),
        down(query_part + spec.kept_dim() + gates - gates_beside) {}
  int64_t query, absorbed, latent, value, gates;
  int64_t gates_beside;   // that are made with queries
  int64_t latent_beside;  // a query's latent behind its norm, where it lies before the other
  int64_t query_input;    // what queries are made of
  int64_t query_part;     // queries or their latent
  int64_t down;           // these, then what is kept, then gates
};

// Rows of which the chosen keys lie in the workspace at a time: as many as give threads work, and
// thread blocks of a GPU.
constexpr int32_t kGatheredRows = 8;
constexpr int32_t kGatheredRowsOfGpu = kGatheredRowsMax;

class LatentAttentionMixer final : public Mixer {
 public:
  LatentAttentionMixer(const LatentAttentionSpec& spec, int64_t hidden)
      : spec_(spec),
        hidden_(hidden),
        whole_heads_(spec.heads),
        index_(spec.index, hidden, spec.query_rank, spec.rope_dim, spec.rope),
        out_(LatentWidths(spec).value, hidden) {}

  // A rank has heads and the latents of all. Fewer heads than ranks are computed by every rank.
  Status split(const ShardSpec& shard) override {
    if (whole_heads_ < shard.ranks) return ok_status();
    const Shares heads(whole_heads_, shard.ranks, 1);
    out_.split(shard, heads.times(spec_.value_dim));
    if (shard.all_on_one) return ok_status();
    head_first_ = static_cast<int32_t>(heads.first(shard.rank));
    spec_.heads = static_cast<int32_t>(heads.count(shard.rank));
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    on_gpu_ = tensors.on_gpu();
    HR_ASSIGN_OR_RETURN(down_, tensors.matrix(down_stack()));
    if (has_query_latent()) {
      HR_ASSIGN_OR_RETURN(query_norm_, tensors.vector("attn_q_a_norm.weight", spec_.query_rank));
      HR_ASSIGN_OR_RETURN(query_up_, tensors.matrix({.rows = {query_rows("attn_q_b")},
                                                     .columns = widths().query_input}));
    }
    HR_ASSIGN_OR_RETURN(norm_, load_latent_norm(tensors, spec_));
    HR_RETURN_IF_ERROR(spec_.joined ? load_joined(tensors) : load_apart(tensors));
    HR_RETURN_IF_ERROR(index_.load(tensors));
    if (spec_.sinks) {
      HR_ASSIGN_OR_RETURN(sinks_, tensors.vector("attn_sinks.weight", whole_heads_));
    }
    return out_.load(tensors, MatrixStack::Rows{"attn_output", hidden_}, /*bias=*/false);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&down_.weight};
    if (has_query_latent()) all.push_back(&query_up_.weight);
    if (in_stacks()) all.insert(all.end(), {&key_stack_.weight, &value_stack_.weight});
    for (LinearWeight* const of_index : index_.matrices()) all.push_back(of_index);
    for (LinearLayer& key : keys_) all.push_back(&key.weight);
    for (LinearLayer& value : values_) all.push_back(&value.weight);
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }

  LayerKv kept() const override {
    return {.kv_heads = 1,
            .k_dim = spec_.kept_dim(),
            .v_dim = spec_.rank,
            .v_aliases_k = true,
            .index_dim = index_.is_here() ? spec_.index.dim : 0};
  }
  int64_t carried_columns() const override { return index_.carried_columns(); }
  int32_t query_heads() const override { return spec_.heads; }
  std::vector<int64_t> scratch_columns(bool) const override {
    return {widths().latent_beside + widths().down,
            widths().absorbed,
            widths().latent,
            out_.input_width(),
            has_query_latent() ? widths().query + widths().gates_beside : 1,
            std::max<int64_t>(index_.scratch_columns(), 1)};
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    const auto of = [&](const LinearLayer& layer) {
      return linear_workspace_bytes(load.rows, layer.weight);
    };
    int64_t bytes =
        std::max({attention_workspace_bytes(load.thread_count, spec_.rank, load.kv_length_max),
                  of(down_), out_.op_workspace_bytes(load.rows)});
    if (!in_stacks()) bytes = std::max({bytes, of(keys_.front()), of(values_.front())});
    if (has_query_latent()) bytes = std::max(bytes, of(query_up_));
    bytes = std::max(bytes, index_.op_workspace_bytes(load));
    if (is_sparse() && on_gpu_) {
      bytes =
          std::max(bytes, gathered_bytes_of_gpu(std::min<int64_t>(load.rows, kGatheredRowsOfGpu)));
    } else if (is_sparse()) {
      bytes = std::max(bytes, gathered_bytes() +
                                  attention_workspace_bytes(load.thread_count, spec_.rank, top()));
    }
    return bytes;
  }

  Status check_device(const DeviceTraits& device, DType activations) const override {
    if (device.kind == DeviceKind::kCpu) return ok_status();
    if (spec_.sinks) {
      return unsupported(
          "sinks in latent attention have no kernels on a GPU yet: use --device cpu");
    }
    const auto kept_fits = [&](int64_t kept) {
      const AttentionPlan plan;
      AttentionArgs args;
      args.q = row_of_no_data(activations, spec_.heads * kept);
      args.kv = {.k_format = kv_format(activations),
                 .v_format = kv_format(activations),
                 .keys = KeyLayout::kRows,
                 .v_aliases_k = true,
                 .kv_heads = 1,
                 .k_dim = static_cast<int32_t>(kept),
                 .v_dim = static_cast<int32_t>(std::min<int64_t>(kept, spec_.rank))};
      args.plan = &plan;
      args.out = row_of_no_data(activations, int64_t{spec_.heads} * args.kv.v_dim);
      return attention_kernels().find(device, args) != nullptr;
    };
    if (kept_fits(spec_.kept_dim())) return index_.check_device(device, activations);
    return unsupported(fmt::format(
        "latents of {} are larger than kernels on a GPU take, which is {}: use --device "
        "cpu",
        spec_.kept_dim(), largest_that_fits(spec_.kept_dim(), kept_fits)));
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    OpContext& context = run.branch.context();
    const TensorView whole = run.scratch.rows(kDown, rows, widths().latent_beside + widths().down);
    const TensorView down = column_range(whole, widths().latent_beside, widths().down);
    const TensorView absorbed = run.scratch.rows(kAbsorbed, rows, widths().absorbed);
    const TensorView latents = run.scratch.rows(kLatents, rows, widths().latent);
    const TensorView values = run.scratch.rows(kValues, rows, out_.input_width());
    run.branch.multiply_input(down_, down);
    const TensorView made = queries(run, whole);
    const TensorView q = column_range(made, 0, widths().query);
    if (spec_.temperature.scale != 0) {
      scale_queries(context,
                    {.x = q, .temperature = spec_.temperature, .positions = run.positions});
    }
    multiply_heads(context, key_stack_, keys_, q, absorbed);
    const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
    latent_kv(context, {.kv = column_range(down, widths().query_part, spec_.kept_dim()),
                        .q = q,
                        .cos = angles.cos,
                        .sin = angles.sin,
                        .norm = norm_.data(),
                        .norm_eps = spec_.norm_eps,
                        .heads = spec_.heads,
                        .cache = run.kv,
                        .slots = run.group.slots,
                        .queries = absorbed});
    if (is_sparse()) {
      const TensorView area = run.scratch.rows(kIndex, rows, index_.scratch_columns());
      const TensorView query_latents = column_range(whole, 0, spec_.query_rank);
      const ChosenPlaces chosen = index_.choose(run, query_latents, area);
      on_gpu_ ? attend_chosen_on_gpu(run, chosen, absorbed, latents)
              : attend_chosen(run, chosen, absorbed, latents);
    } else {
      attend(run, run.kv, run.group.sequences, run.group.plan, absorbed, latents);
    }
    multiply_heads(context, value_stack_, values_, latents, out_.own_columns(values));
    if (spec_.gate_dim > 0) {
      sigmoid_gate(context,
                   {.x = out_.own_columns(values),
                    .gate = last_columns(spec_.query_and_gates ? made : down, widths().gates)});
    }
    out_.end(run.branch, values);
  }

 private:
  static constexpr int32_t kBlockTokensMax = 64;  // of a page, whose last may be a part of one

  enum Area : size_t {
    kDown,
    kAbsorbed,
    kLatents,
    kValues,
    kQueries,
    kIndex
  };  // of scratch memory

  bool has_query_latent() const { return spec_.query_rank > 0; }
  bool in_stacks() const { return keys_.empty(); }
  bool is_sparse() const { return spec_.index.is_sparse(); }
  int32_t top() const { return spec_.index.top; }

  void attend(const MixerRun& run, const KvLayerView& kv,
              std::span<const AttentionSequence> sequences, const AttentionPlan* plan,
              const TensorView& absorbed, const TensorView& latents) const {
    attention(run.branch.context(),
              {.q = absorbed,
               .kv = kv,
               .sequences = sequences,
               .table_offset = kv.base == run.kv.base ? run.group.table_offset : 0,
               .scale = spec_.scale,
               .f32_products = down_.weight.compute() != LinearCompute::kFast,
               .sinks = spec_.sinks ? sinks_.data() + head_first_ : nullptr,
               .plan = plan,
               .out = latents});
  }

  // A row of a batch, and where it stands.
  struct RowOfSequence {
    const AttentionSequence* sequence;
    int32_t row;  // of the sequence's
    int64_t in_batch() const { return int64_t{sequence->row_first} + row; }
  };

  // Rows that see no more than `top` keys attend the cache as it lies, the others what is gathered
  // of it. Either way a row's keys are summed in one order, so that its bits do not depend on
  // which.
  void attend_chosen(const MixerRun& run, const ChosenPlaces& chosen, const TensorView& absorbed,
                     const TensorView& latents) const {
    std::vector<AttentionSequence> whole;
    std::vector<RowOfSequence> sparse;
    for (const AttentionSequence& sequence : run.group.sequences) {
      AttentionSequence front = sequence;
      if (sequence.kv_length > top()) {
        const int32_t first = sequence.kv_length - sequence.row_count;
        const int32_t before_tree = std::max(0, sequence.row_count - sequence.tree_rows);
        front.row_count = std::clamp(top() - first, 0, before_tree);
        front.kv_length = first + front.row_count;
        front.tree_rows = 0;
        front.paths = nullptr;
      }
      if (front.row_count > 0) whole.push_back(front);
      for (int32_t r = front.row_count; r < sequence.row_count; ++r) {
        sparse.push_back({&sequence, r});
      }
    }
    if (!whole.empty()) attend(run, run.kv, whole, nullptr, absorbed, latents);
    for (size_t first = 0; first < sparse.size(); first += kGatheredRows) {
      const size_t count = std::min<size_t>(kGatheredRows, sparse.size() - first);
      attend_gathered(run, std::span(sparse).subspan(first, count), chosen, absorbed, latents);
    }
  }

  void attend_gathered(const MixerRun& run, std::span<const RowOfSequence> rows,
                       const ChosenPlaces& chosen, const TensorView& absorbed,
                       const TensorView& latents) const {
    OpContext& context = run.branch.context();
    const Workspace::Mark mark(context.workspace);
    const KvLayerView pages = gathered_view(run.kv.block_tokens, context.workspace);
    const int32_t blocks = blocks_of_row(run.kv.block_tokens);
    std::vector<int32_t> table(rows.size() * static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<GatheredRow> gathered;
    std::vector<AttentionSequence> sequences;
    for (const RowOfSequence& row : rows) {
      const auto first_block = static_cast<int32_t>(gathered.size()) * blocks;
      const int32_t count = chosen.count(row.sequence->position(row.row));
      gathered.push_back({.places = chosen.row(row.in_batch()),
                          .count = count,
                          .block_table = row.sequence->block_table + run.group.table_offset,
                          .first_block = first_block});
      sequences.push_back({.row_first = static_cast<int32_t>(row.in_batch()),
                           .row_count = 1,
                           .kv_length = count,
                           .block_table = table.data() + first_block});
    }
    gather_keys(context, {.from = run.kv, .rows = gathered, .to = pages});
    attend(run, pages, sequences, nullptr, absorbed, latents);
  }

  // Lengths are on the device, and those of a recorded step are others when it is replayed: all its
  // rows attend what is gathered, of which a row that sees few keys has all. A step of more rows is
  // not recorded; where its sequences are short, it attends the cache as it lies.
  void attend_chosen_on_gpu(const MixerRun& run, const ChosenPlaces& chosen,
                            const TensorView& absorbed, const TensorView& latents) const {
    OpContext& context = run.branch.context();
    const AttentionPlan& plan = *run.group.plan;
    const int64_t rows = absorbed.rows();
    if (rows > plan.shape.sequences_max && plan.kv_length_max <= top()) {
      return attend(run, run.kv, {}, &plan, absorbed, latents);
    }
    const int32_t blocks = blocks_of_row(run.kv.block_tokens);
    for (int64_t first = 0; first < rows; first += kGatheredRowsOfGpu) {
      const int64_t count = std::min<int64_t>(kGatheredRowsOfGpu, rows - first);
      const Workspace::Mark mark(context.workspace);
      KvLayerView pages = pages_of_gpu(run.kv.k_format, run.kv.block_tokens);
      pages.base = context.workspace.take(pages.block_stride * blocks * count);
      GatheredStep step{.chosen = chosen,
                        .plan = &plan,
                        .row_first = static_cast<int32_t>(first),
                        .row_count = static_cast<int32_t>(count),
                        .blocks_of_row = blocks};
      step.memory = context.workspace.take(gathered_plan_bytes(plan.shape, step.row_count, blocks));
      gather_keys(context, {.from = run.kv, .rows = {}, .to = pages, .step = &step});
      const AttentionPlan of_gathered = gathered_plan(step);
      attend(run, pages, {}, &of_gathered, absorbed.row_range(first, count),
             latents.row_range(first, count));
    }
  }

  KvLayerView pages_of_gpu(KvFormat format, int32_t block_tokens) const {
    KvLayerView view = kv_view(spec_of_gathered(), {format}, KeyLayout::kRows, block_tokens);
    view.block_stride = layer_part_bytes(view);
    return view;
  }
  // Pages of numbers of up to 32 bits, and the plan of attention over them.
  int64_t gathered_bytes_of_gpu(int64_t rows) const {
    constexpr int64_t kPlanBytesMax = int64_t{256} << 10;  // but for the block table
    const int64_t tokens = rows * (top() + kBlockTokensMax);
    return tokens * (spec_.kept_dim() + 1) * static_cast<int64_t>(sizeof(float)) + kPlanBytesMax;
  }

  int32_t blocks_of_row(int32_t block_tokens) const {
    return (top() + block_tokens - 1) / block_tokens;
  }
  // What chosen keys of kGatheredRows rows lie in.
  KvLayerView gathered_view(int32_t block_tokens, Workspace& workspace) const {
    KvLayerView view =
        kv_view(spec_of_gathered(), {KvFormat::kF32}, KeyLayout::kTransposed, block_tokens);
    view.block_stride = layer_part_bytes(view);
    view.base = workspace.take(view.block_stride * blocks_of_row(block_tokens) * kGatheredRows);
    return view;
  }
  LayerKv spec_of_gathered() const {
    LayerKv kv = kept();
    kv.index_dim = 0;
    return kv;
  }
  int64_t gathered_bytes() const {
    return int64_t{kGatheredRows} * (top() + kBlockTokensMax) * spec_.kept_dim() *
               static_cast<int64_t>(sizeof(float)) +
           512;
  }

  // Of each head's columns of x the first that its matrix has, to the first of its columns of y.
  void multiply_heads(OpContext& context, const LinearLayer& stack,
                      const std::vector<LinearLayer>& heads, const TensorView& x,
                      const TensorView& y) const {
    if (in_stacks()) {
      return head_linear(context, {.heads = spec_.heads, .x = x, .weight = &stack.weight, .y = y});
    }
    const int64_t x_step = x.columns() / spec_.heads, y_step = y.columns() / spec_.heads;
    for (int32_t h = 0; h < spec_.heads; ++h) {
      const LinearLayer& head = heads[static_cast<size_t>(h)];
      multiply(context, head, column_range(x, h * x_step, head.weight.k()),
               column_range(y, h * y_step, head.weight.n()));
    }
  }
  LatentWidths widths() const { return LatentWidths(spec_); }
  // This rank's, of a tensor with those of all.
  MatrixStack::Rows query_rows(const char* name) const {
    const int32_t of_head = spec_.query_dim() + (spec_.query_and_gates ? spec_.gate_dim : 0);
    MatrixStack::Rows rows{name, int64_t{spec_.heads} * of_head};
    rows.first = int64_t{head_first_} * of_head;
    rows.of = int64_t{whole_heads_} * of_head;
    if (spec_.query_and_gates) {
      rows.order = queries_before_gates(spec_);
    } else if (spec_.rows_interleaved) {
      rows.order = order_of_heads(spec_.heads, spec_.plain_dim, spec_.rope_dim);
    }
    return rows;
  }
  MatrixStack down_stack() const {
    RowOrder kept;
    if (spec_.rows_interleaved) kept = order_of_heads(1, spec_.rank, spec_.rope_dim);
    MatrixStack stack{.columns = hidden_};
    if (has_query_latent()) {
      stack.rows = {{"attn_q_a", spec_.query_rank}};
    } else {
      stack.rows = {query_rows("attn_q")};
    }
    stack.rows.push_back({"attn_kv_a_mqa", spec_.kept_dim(), std::move(kept)});
    if (spec_.gate_dim > 0 && !spec_.query_and_gates) {
      stack.rows.push_back({.name = "attn_gate",
                            .count = widths().gates,
                            .first = int64_t{head_first_} * spec_.gate_dim,
                            .of = int64_t{whole_heads_} * spec_.gate_dim});
    }
    return stack;
  }

  // K_h' of each head is made of attn_kv_b, V_h are rows of it.
  Status load_joined(LayerTensors& tensors) {
    const int64_t per_head = int64_t{spec_.plain_dim} + spec_.value_dim;
    const int64_t rows = whole_heads_ * per_head;
    HR_ASSIGN_OR_RETURN(const std::vector<float> all,
                        tensors.values("attn_kv_b.weight", Shape{rows, spec_.rank}));
    std::vector<float> turned(static_cast<size_t>(spec_.plain_dim) *
                              static_cast<size_t>(spec_.rank));
    std::vector<float> all_turned;  // of all heads, on a GPU
    MatrixStack values{.columns = spec_.rank, .dense = true};
    for (int64_t h = head_first_; h < head_end(); ++h) {
      const float* const key = all.data() + h * per_head * spec_.rank;  // [plain_dim, rank]
      for (int64_t c = 0; c < spec_.rank; ++c) {
        for (int64_t d = 0; d < spec_.plain_dim; ++d) {
          turned[static_cast<size_t>(c * spec_.plain_dim + d)] = key[d * spec_.rank + c];
        }
      }
      const MatrixStack::Rows value{.name = "attn_kv_b",
                                    .count = spec_.value_dim,
                                    .first = h * per_head + spec_.plain_dim,
                                    .of = rows};
      if (tensors.on_gpu()) {
        all_turned.insert(all_turned.end(), turned.begin(), turned.end());
        values.rows.push_back(value);
        continue;
      }
      HR_ASSIGN_OR_RETURN(LinearLayer absorbs,
                          tensors.made(Shape{spec_.rank, spec_.plain_dim}, turned));
      keys_.push_back(std::move(absorbs));
      HR_ASSIGN_OR_RETURN(LinearLayer of_head,
                          tensors.matrix({.rows = {value}, .columns = spec_.rank}));
      values_.push_back(std::move(of_head));
    }
    if (!tensors.on_gpu()) return ok_status();
    const int64_t stacked = int64_t{spec_.heads} * spec_.rank;
    HR_ASSIGN_OR_RETURN(key_stack_, tensors.made(Shape{stacked, spec_.plain_dim}, all_turned));
    HR_ASSIGN_OR_RETURN(value_stack_, tensors.matrix(values));
    return ok_status();
  }

  Status load_apart(LayerTensors& tensors) {
    if (tensors.on_gpu()) {
      HR_ASSIGN_OR_RETURN(key_stack_, load_stack(tensors, "attn_k_b", spec_.rank, spec_.plain_dim));
      HR_ASSIGN_OR_RETURN(value_stack_,
                          load_stack(tensors, "attn_v_b", spec_.value_dim, spec_.rank));
      return ok_status();
    }
    const auto load_head = [&](const std::string& name, int64_t rows, int64_t columns, int32_t h,
                               std::vector<LinearLayer>& to) -> Status {
      const MatrixStack::Rows matrix{
          .name = name, .count = rows, .experts = whole_heads_, .expert = h};
      HR_ASSIGN_OR_RETURN(LinearLayer of_head,
                          tensors.matrix({.rows = {matrix}, .columns = columns}));
      to.push_back(std::move(of_head));
      return ok_status();
    };
    for (int32_t h = head_first_; h < head_end(); ++h) {
      HR_RETURN_IF_ERROR(load_head("attn_k_b", spec_.rank, spec_.plain_dim, h, keys_));
      HR_RETURN_IF_ERROR(load_head("attn_v_b", spec_.value_dim, spec_.rank, h, values_));
    }
    return ok_status();
  }

  // Matrices of all heads, one tensor of which they are parts, one below the other.
  Result<LinearLayer> load_stack(LayerTensors& tensors, const std::string& name, int64_t rows,
                                 int64_t columns) const {
    MatrixStack stack{.columns = columns, .dense = true};
    for (int32_t h = head_first_; h < head_end(); ++h) {
      stack.rows.push_back({.name = name, .count = rows, .experts = whole_heads_, .expert = h});
    }
    return tensors.matrix(stack);
  }

  // And behind them gates, where both are made of one. `rows`: of kDown, whose first columns become
  // the latent behind its norm.
  TensorView queries(const MixerRun& run, const TensorView& rows) const {
    if (!has_query_latent()) return column_range(rows, 0, widths().query);
    OpContext& context = run.branch.context();
    rms_norm(context, {.x = column_range(rows, widths().latent_beside, spec_.query_rank),
                       .residual = {},
                       .weight = query_norm_.data(),
                       .eps = spec_.norm_eps,
                       .out = column_range(rows, 0, spec_.query_rank)});
    const TensorView made =
        run.scratch.rows(kQueries, run.branch.rows(), widths().query + widths().gates_beside);
    multiply(context, query_up_, column_range(rows, 0, widths().query_input), made);
    return made;
  }
  static TensorView last_columns(const TensorView& rows, int64_t count) {
    return column_range(rows, rows.columns() - count, count);
  }

  int32_t head_end() const { return head_first_ + spec_.heads; }

  LatentAttentionSpec spec_;  // with this rank's heads, H
  const int64_t hidden_;
  const int32_t whole_heads_;  // of all ranks
  int32_t head_first_ = 0;     // of this one
  LinearLayer down_;           // [query_rank or H query_dim, kept_dim and gates; D]
  DeviceVector query_norm_;    // [query_rank]
  LinearLayer query_up_;       // [H query_dim and gates, query_rank or twice it]
  DeviceVector norm_;          // [rank]
  DeviceVector sinks_;         // [heads of all ranks], or empty
  // On a GPU those of all heads in one.
  LinearLayer key_stack_;            // [H rank, plain_dim]
  LinearLayer value_stack_;          // [H value_dim, rank]
  std::vector<LinearLayer> keys_;    // [H] K_h', [rank, plain_dim]
  std::vector<LinearLayer> values_;  // [H] V_h, [value_dim, rank]
  KeyIndex index_;
  bool on_gpu_ = false;
  BranchOutput out_;  // [D, H value_dim]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const LatentAttentionSpec& spec, int64_t hidden) {
  return std::make_unique<LatentAttentionMixer>(spec, hidden);
}

}  // namespace headrace
