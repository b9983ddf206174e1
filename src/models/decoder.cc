#include "models/decoder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "models/decoder_weights.h"
#include "models/device_limits.h"
#include "ops/attention/rope_attention.h"
#include "ops/linear/gated_linear.h"
#include "ops/linear/linear.h"
#include "ops/linear/norm_linear.h"
#include "ops/linear/residual_linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/embedding.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/soft_cap.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

// The widest rows of any layer.
struct Widths {
  int64_t hidden = 0;
  int64_t qkv = 0;
  int64_t attention_out = 0;
  int64_t gate_up = 0;
  int64_t activated = 0;

  static Widths of(const DecoderSpec& spec) {
    Widths widths{.hidden = spec.model.hidden_size};
    for (const DecoderLayerSpec& layer : spec.layers) {
      const int64_t q = int64_t{layer.heads} * layer.head_dim;
      const int64_t kv = int64_t{layer.kv_heads} * layer.head_dim;
      const bool gated = layer.feed_forward != FeedForward::kPlain;
      widths.qkv = std::max(widths.qkv, q + 2 * kv);
      widths.attention_out = std::max(widths.attention_out, q);
      widths.gate_up = std::max(widths.gate_up, (gated ? 2 : 1) * int64_t{layer.ffn});
      widths.activated = std::max(widths.activated, int64_t{layer.ffn});
    }
    return widths;
  }
};

// Whether the parts of a layer share their scratch memory. They do on the CPU, where an op has
// ended before the next begins: a normalised input lies where the branch made of it will,
// attention's rows where the feed-forward's will, activated rows over their gates, and the
// feed-forward part takes a few rows at a time. For SmolLM2-135M that is 3 MiB at 256 rows instead
// of 7.
bool shares_scratch(const DeviceTraits& device) { return device.kind == DeviceKind::kCpu; }

// As many as share one unpacking of a panel of weights (ops/linear/cpu_plan.h).
constexpr int64_t kFeedForwardRows = 128;
// With AMX a product of few rows is bound by reading the weights.
constexpr int64_t kAmxFeedForwardRows = 512;

// Rows that the feed-forward part takes at a time.
int64_t feed_forward_rows(int64_t rows, const DeviceTraits& device) {
  if (!shares_scratch(device)) return rows;
  return std::min(rows, device.cpu.amx_bf16 ? kAmxFeedForwardRows : kFeedForwardRows);
}

// Where the scratch memory of a pass over T rows lies in the workspace.
struct DecoderScratch {
  struct Angles {
    TensorPart cos, sin;  // [T, rope_dim / 2]
  };
  TensorPart normed;                    // [T, D]
  TensorPart branch;                    // [T, D]
  TensorPart qkv;                       // [T, widest (Hq + 2 Hkv) d]
  TensorPart attention_out;             // [T, widest Hq d]
  TensorPart gate_up;                   // [rows of a feed-forward, widest 2F]
  std::optional<TensorPart> activated;  // [T, widest F]; none where scratch is shared
  std::vector<Angles> angles;           // [rope tables]

  static DecoderScratch place(ArenaPlaces& places, const DecoderSpec& spec, const Widths& widths,
                              int64_t rows, DType dtype, const DeviceTraits& device) {
    DecoderScratch scratch;
    scratch.normed = places.take_tensor(dtype, Shape{rows, widths.hidden});
    if (shares_scratch(device)) {
      scratch.branch = scratch.normed;
      scratch.place_shared(places, widths, rows, feed_forward_rows(rows, device));
    } else {
      scratch.branch = places.take_tensor(dtype, Shape{rows, widths.hidden});
      scratch.qkv = places.take_tensor(dtype, Shape{rows, widths.qkv});
      scratch.attention_out = places.take_tensor(dtype, Shape{rows, widths.attention_out});
      scratch.gate_up = places.take_tensor(dtype, Shape{rows, widths.gate_up});
      scratch.activated = places.take_tensor(dtype, Shape{rows, widths.activated});
    }
    for (const RopeTable& rope : spec.ropes) {
      const Shape shape{rows, std::ssize(rope.inv_freq)};
      const TensorPart cos = places.take_tensor(DType::kF32, shape);
      scratch.angles.push_back({cos, places.take_tensor(DType::kF32, shape)});
    }
    return scratch;
  }

 private:
  // One memory for both parts of a layer: attention's rows side by side, or the feed-forward's.
  void place_shared(ArenaPlaces& places, const Widths& widths, int64_t rows,
                    int64_t feed_forward_rows) {
    const DType dtype = normed.dtype;
    const int64_t attention = rows * (widths.qkv + widths.attention_out);
    const int64_t feed_forward = feed_forward_rows * widths.gate_up;
    const TensorPart shared = places.take_tensor(dtype, Shape{std::max(attention, feed_forward)});
    const int64_t qkv_bytes = *tensor_bytes(dtype, Shape{rows, widths.qkv});
    qkv = {shared.first, dtype, Shape{rows, widths.qkv}};
    attention_out = {shared.first + qkv_bytes, dtype, Shape{rows, widths.attention_out}};
    gate_up = {shared.first, dtype, Shape{feed_forward_rows, widths.gate_up}};
  }
};

// The pieces that a pass over the layers takes of its workspace at most, those of its ops included.
int64_t scratch_parts_max(const DecoderSpec& spec) { return 16 + 2 * std::ssize(spec.ropes); }

// The first `columns` of each row of scratch memory, dense.
TensorView columns_of(const TensorView& scratch, int64_t columns) {
  return {scratch.data, scratch.dtype, Shape{scratch.rows(), columns}};
}
// Columns [first, first + count) of `rows`, at their stride.
TensorView column_range(const TensorView& rows, int64_t first, int64_t count) {
  return {rows.data + first * dtype_info(rows.dtype).block_bytes, rows.dtype,
          Shape{rows.rows(), count}, rows.row_stride};
}

// x := x + residual_scale * residual, where there is one; out = norm(x).
void normalise(OpContext& context, const DecoderSpec& spec, const NormWeights& norm,
               const TensorView& x, const ConstTensorView& residual, const TensorView& out) {
  if (norm.kind == NormKind::kLayer) {
    layer_norm(context, {.x = x,
                         .residual = residual,
                         .weight = norm.weight.data(),
                         .bias = norm.bias.data(),
                         .eps = spec.norm_eps,
                         .out = out,
                         .residual_scale = spec.residual_scale});
  } else {
    rms_norm(context, {.x = x,
                       .residual = residual,
                       .weight = norm.weight.data(),
                       .eps = spec.norm_eps,
                       .out = out,
                       .residual_scale = spec.residual_scale});
  }
}

// One run of layers over a batch. T = its tokens.
class DecoderPass {
 public:
  DecoderPass(OpContext& context, const DecoderSpec& spec, const Widths& widths,
              const ForwardBatch& batch, TensorView hidden)
      : context_(context), spec_(spec), batch_(batch), hidden_(hidden) {
    ArenaPlaces places;
    const DecoderScratch scratch = DecoderScratch::place(places, spec, widths, hidden.rows(),
                                                         hidden.dtype, context.device.traits());
    std::byte* const memory = context.workspace.take(places.used());
    normed_ = scratch.normed.in(memory);
    branch_ = scratch.branch.in(memory);
    qkv_ = scratch.qkv.in(memory);
    attention_out_ = scratch.attention_out.in(memory);
    gate_up_ = scratch.gate_up.in(memory);
    if (scratch.activated.has_value()) activated_ = scratch.activated->in(memory);
    for (const DecoderScratch::Angles& angles : scratch.angles) {
      angles_.push_back({angles.cos.in(memory), angles.sin.in(memory)});
    }
  }

  // Once, before the layers.
  void rotate_positions(const std::vector<RopeWeights>& ropes) {
    for (size_t i = 0; i < ropes.size(); ++i) fill_angles(ropes[i], angles_[i]);
  }

  void run_layer(int32_t index, const DecoderLayer& layer, const KvLayerView& kv) {
    const ForwardBatch::Group& group = group_of(index);
    const RopeKvArgs rope = project(layer, kv, group);
    rope_attention(context_,
                   {.rope = rope, .attention = attention_of(layer, group, kv, queries_of(rope))});
    finish_attention(layer);
    feed_forward_part(layer);
  }

  // The last: keys and values of all rows, the rest of those that are read afterwards. They are the
  // first of `hidden` then.
  void run_layer_of_kept(int32_t index, const DecoderLayer& layer, const KvLayerView& kv) {
    const ForwardBatch::KeptRows& kept = *batch_.kept;
    const RopeKvArgs rope = project(layer, kv, group_of(index));
    rope_kv(context_, rope);
    if (kept.rows.empty()) return;
    const TensorView hidden = hidden_;
    const TensorView q = keep_rows(kept.rows, queries_of(rope));
    attention(context_, attention_of(layer, kept.group, kv, q));
    finish_attention(layer);
    feed_forward_part(layer);
    settle();
    context_.stream.copy(hidden.data, hidden_.data, hidden_.rows() * hidden_.row_stride);
  }

  // Brings `hidden` up to date: a branch is added when the next norm reads it, or here.
  void settle() {
    if (branch_waits_) {
      residual_add(context_, {.x = hidden_, .residual = branch_, .scale = spec_.residual_scale});
    }
    branch_waits_ = false;
  }

 private:
  struct Angles {
    TensorView cos, sin;  // [T, rope_dim / 2]
  };
  struct RowRange {
    int64_t first, count;
  };
  // What a part of a layer reads: rows of `hidden` through a norm that may add the branch before it
  // first.
  struct PartInput {
    const NormWeights* norm;
    bool adds_branch;
    RowRange rows;

    PartInput of(RowRange range) const { return {norm, adds_branch, range}; }
  };

  void fill_angles(const RopeWeights& rope, const Angles& angles) {
    rope_angles(context_, {.positions = batch_.positions,
                           .inv_freq = {reinterpret_cast<const double*>(rope.inv_freq.data()),
                                        static_cast<size_t>(rope.count)},
                           .scale = rope.scale,
                           .cos = angles.cos,
                           .sin = angles.sin});
  }

  const ForwardBatch::Group& group_of(int32_t layer) const {
    return batch_.groups[static_cast<size_t>(batch_.layer_group[static_cast<size_t>(layer)])];
  }

  // Queries, keys and values of the rows, which are still to be rotated and stored.
  RopeKvArgs project(const DecoderLayer& layer, const KvLayerView& kv,
                     const ForwardBatch::Group& group) {
    const TensorView qkv = columns_of(qkv_, layer.qkv.weight.n());
    multiply(layer.qkv, input_through(layer.attention_norm), qkv);
    normalise_whole_rows(layer, qkv);
    const DecoderLayerSpec& spec = layer.spec;
    const bool heads = spec.qk_norm == QkNorm::kHead;
    const Angles& angles = angles_[static_cast<size_t>(spec.rope)];
    return {.qkv = qkv,
            .cos = angles.cos,
            .sin = angles.sin,
            .style = RopeStyle::kHalf,
            .query_heads = spec.heads,
            .kv = kv,
            .slots = group.slots,
            .q_norm = heads ? layer.q_norm.data() : nullptr,
            .k_norm = heads ? layer.k_norm.data() : nullptr,
            .norm_eps = spec_.norm_eps};
  }

  static TensorView queries_of(const RopeKvArgs& rope) {
    return column_range(rope.qkv, 0, int64_t{rope.query_heads} * rope.kv.head_dim);
  }

  // From here on these rows alone; their queries. Both halves of the scratch memory are used: the
  // rows kept lie in the second, what is computed of them in the first.
  TensorView keep_rows(std::span<const int32_t> rows, const TensorView& q) {
    const auto kept = static_cast<int64_t>(rows.size());
    const auto second_half = [&](const TensorView& scratch, int64_t columns) {
      return columns_of(scratch.row_range(scratch.rows() - kept, kept), columns);
    };
    CHECK(2 * kept <= hidden_.rows());
    const TensorView hidden = second_half(normed_, hidden_.columns());
    const TensorView queries = second_half(attention_out_, q.columns());
    row_gather(context_, {.x = hidden_, .rows = rows, .out = hidden});
    row_gather(context_, {.x = q, .rows = rows, .out = queries});
    hidden_ = hidden;
    for (TensorView* scratch : {&normed_, &branch_, &attention_out_}) {
      *scratch = scratch->row_range(0, kept);
    }
    return queries;
  }

  AttentionArgs attention_of(const DecoderLayer& layer, const ForwardBatch::Group& group,
                             const KvLayerView& kv, const TensorView& q) const {
    const DecoderLayerSpec& spec = layer.spec;
    return {.q = q,
            .kv = kv,
            .sequences = group.sequences,
            .scale = spec.attention_scale,
            .window = spec.window,
            .soft_cap = spec.attention_soft_cap,
            .f32_products = layer.qkv.weight.compute() != LinearCompute::kFast,
            .plan = group.plan,
            .out = columns_of(attention_out_, q.columns())};
  }

  // Behind attention: its output matrix.
  void finish_attention(const DecoderLayer& layer) {
    const int64_t width = int64_t{layer.spec.heads} * layer.spec.head_dim;
    const TensorView attended = columns_of(attention_out_, width);
    branch_waits_ = multiply_branch(layer.attention_out, attended, {0, hidden_.rows()},
                                    layer.attention_post_norm);
    finish_branch(layer.attention_post_norm);
  }

  void feed_forward_part(const DecoderLayer& layer) {
    const PartInput input = input_through(layer.ffn_norm);
    // Runs of equal size: one row at the end would cost as much as many.
    const int64_t rows = hidden_.rows(), rows_max = gate_up_.rows();
    const int64_t runs = (rows + rows_max - 1) / std::max<int64_t>(rows_max, 1);
    for (int64_t run = 0, first = 0; run < runs; ++run) {
      const int64_t count = (rows - first) / (runs - run);
      branch_waits_ = feed_forward(layer, input.of({first, count}));
      first += count;
    }
    finish_branch(layer.ffn_post_norm);
  }

  // As multiply_branch(), which it ends with.
  bool feed_forward(const DecoderLayer& layer, const PartInput& input) {
    const DecoderLayerSpec& spec = layer.spec;
    const int64_t count = input.rows.count;
    const TensorView gate_up = columns_of(gate_up_.row_range(0, count), layer.gate_up.weight.n());
    const TensorView activated = activated_.data == nullptr
                                     ? column_range(gate_up, 0, spec.ffn)
                                     : columns_of(activated_.row_range(0, count), spec.ffn);
    if (spec.feed_forward == FeedForward::kPlain) {
      multiply(layer.gate_up, input, gate_up);
      activation(context_, {.x = gate_up, .activation = spec.activation, .out = activated});
    } else {
      multiply_gated(layer, input, gate_up, activated);
    }
    return multiply_branch(layer.down, activated, input.rows, layer.ffn_post_norm);
  }

  // Norms of q and k that are over all heads of a row; those over a head are the rotation's.
  void normalise_whole_rows(const DecoderLayer& layer, const TensorView& qkv) {
    const DecoderLayerSpec& spec = layer.spec;
    if (spec.qk_norm != QkNorm::kRow) return;
    const int64_t q_width = int64_t{spec.heads} * spec.head_dim;
    const int64_t k_width = int64_t{spec.kv_heads} * spec.head_dim;
    normalise_row(layer.q_norm, column_range(qkv, 0, q_width));
    normalise_row(layer.k_norm, column_range(qkv, q_width, k_width));
  }

  void normalise_row(const DeviceVector& weight, const TensorView& rows) {
    rms_norm(
        context_,
        {.x = rows, .residual = {}, .weight = weight.data(), .eps = spec_.norm_eps, .out = rows});
  }

  PartInput input_through(const NormWeights& norm) {
    if (unfused() || norm.kind == NormKind::kNone) settle();
    const bool adds = std::exchange(branch_waits_, false);
    return {&norm, adds, {0, hidden_.rows()}};
  }

  // The rows themselves, for ops that do not take a norm along.
  ConstTensorView normalised(const PartInput& input) {
    const auto [first, count] = input.rows;
    const TensorView x = hidden_.row_range(first, count);
    if (input.norm->kind == NormKind::kNone) return x;
    const TensorView normed = normed_.row_range(first, count);
    normalise(context_, spec_, *input.norm, x, residual_of(input), normed);
    return normed;
  }

  ConstTensorView residual_of(const PartInput& input) const {
    if (!input.adds_branch) return {};
    return branch_.row_range(input.rows.first, input.rows.count);
  }

  // Whether its norm may be one op with the product that reads it.
  bool joins_product(const PartInput& input) const {
    return input.norm->kind == NormKind::kRms && !unfused();
  }
  RmsNormArgs norm_args(const PartInput& input) const {
    const auto [first, count] = input.rows;
    return {.x = hidden_.row_range(first, count),
            .residual = residual_of(input),
            .weight = input.norm->weight.data(),
            .eps = spec_.norm_eps,
            .out = normed_.row_range(first, count),
            .residual_scale = spec_.residual_scale};
  }

  void multiply(const LinearLayer& layer, const PartInput& input, const TensorView& y) {
    if (!joins_product(input)) return multiply(layer, normalised(input), y);
    const RmsNormArgs norm = norm_args(input);
    norm_linear(
        context_,
        {.norm = norm,
         .linear = {.x = norm.out, .weight = &layer.weight, .bias = layer.bias.data(), .y = y}});
  }

  void multiply_gated(const DecoderLayer& layer, const PartInput& input, const TensorView& gate_up,
                      const TensorView& activated) {
    GatedLinearArgs gated{.x = {},
                          .weight = &layer.gate_up.weight,
                          .bias = layer.gate_up.bias.data(),
                          .activation = layer.spec.activation,
                          .gate_up = gate_up,
                          .y = activated};
    if (joins_product(input)) {
      const RmsNormArgs norm = norm_args(input);
      gated.x = norm.out;
      norm_gated_linear(context_, {.norm = norm, .gated = gated});
    } else {
      gated.x = normalised(input);
      gated_linear(context_, gated);
    }
  }

  // The product that a branch ends with, of these rows. Whether it is still to be added to
  // `hidden`: it lies in branch_ then. (It may lie where the branch's input was.)
  bool multiply_branch(const LinearLayer& layer, const ConstTensorView& x, RowRange rows,
                       const NormWeights& post_norm) {
    const TensorView branch = branch_.row_range(rows.first, rows.count);
    if (unfused() || post_norm.kind != NormKind::kNone) {
      multiply(layer, x, branch);
      return true;
    }
    return !residual_linear(context_, {.in = x,
                                       .weight = &layer.weight,
                                       .bias = layer.bias.data(),
                                       .scale = spec_.residual_scale,
                                       .x = hidden_.row_range(rows.first, rows.count),
                                       .branch = branch});
  }

  void finish_branch(const NormWeights& post_norm) {
    if (post_norm.kind == NormKind::kNone) return;
    normalise(context_, spec_, post_norm, branch_, {}, branch_);
  }

  bool unfused() const { return context_.hooks != nullptr && context_.hooks->unfused; }

  void multiply(const LinearLayer& layer, const ConstTensorView& x, const TensorView& y) {
    if (unfused() && multiply_parts(layer, x, y)) return;
    linear(context_, {.x = x, .weight = &layer.weight, .bias = layer.bias.data(), .y = y});
  }

  // False: nothing was done, these are no parts.
  bool multiply_parts(const LinearLayer& layer, const ConstTensorView& x, const TensorView& y) {
    const std::vector<LinearWeight> parts = layer.weight.parts();
    int64_t first = 0;
    for (const LinearWeight& part : parts) {
      const float* bias = layer.bias.data() == nullptr ? nullptr : layer.bias.data() + first;
      linear(context_,
             {.x = x, .weight = &part, .bias = bias, .y = column_range(y, first, part.n())});
      first += part.n();
    }
    return !parts.empty();
  }

  OpContext& context_;
  const DecoderSpec& spec_;
  const ForwardBatch& batch_;
  TensorView hidden_;           // [T, D]; with the rows kept, T is their number
  TensorView normed_;           // [T, D]; branch_ too where scratch is shared
  TensorView branch_;           // [T, D]: what the last part computed
  bool branch_waits_ = false;   // branch_ is still to be added to hidden_
  TensorView qkv_;              // [T, widest (Hq + 2 Hkv) d]
  TensorView attention_out_;    // [T, widest Hq d]
  TensorView gate_up_;          // [rows of a feed-forward, widest 2F]
  TensorView activated_;        // [T, widest F]; none where scratch is shared
  std::vector<Angles> angles_;  // [rope tables]
};

class Decoder final : public Model {
 public:
  Decoder(DecoderSpec spec, DecoderWeights weights, const DeviceTraits& device,
          DType activation_dtype)
      : spec_(std::move(spec)),
        model_spec_(model_spec(spec_)),
        widths_(Widths::of(spec_)),
        weights_(std::move(weights)),
        device_(device),
        activation_dtype_(activation_dtype) {}

  const ModelSpec& spec() const override { return model_spec_; }
  DType activation_dtype() const override { return activation_dtype_; }
  int64_t weight_bytes() const override;
  int64_t unpacked_bytes() const override;
  void pack_more(int64_t bytes_min) override;
  int64_t workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                          int32_t thread_count) const override;

  void embed(OpContext& context, const ForwardBatch& batch, TensorView hidden) const override {
    embedding(context, {.tokens = batch.tokens,
                        .table = weights_.embedding,
                        .out = hidden,
                        .scale = spec_.embedding_scale,
                        .packed = weights_.embedding.data == nullptr ? &weights_.output : nullptr});
  }

  void layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
              std::span<const KvLayerView> kv, TensorView hidden,
              const ForwardTaps& taps) const override {
    Workspace::Mark mark(context.workspace);
    DecoderPass pass(context, spec_, widths_, batch, hidden);
    pass.rotate_positions(weights_.ropes);
    for (int32_t i = range.first; i < range.last; ++i) {
      const DecoderLayer& layer = weights_.layers[static_cast<size_t>(i)];
      if (batch.kept != nullptr && i + 1 == model_spec_.layer_count) {
        return pass.run_layer_of_kept(i, layer, kv[static_cast<size_t>(i)]);
      }
      pass.run_layer(i, layer, kv[static_cast<size_t>(i)]);
      if (taps.after_layer) {
        pass.settle();
        taps.after_layer(i, hidden);
      }
    }
    pass.settle();
  }

  void head(OpContext& context, TensorView rows, TensorView logits) const override {
    normalise(context, spec_, weights_.output_norm, rows, {}, rows);
    linear(context, {.x = rows, .weight = &weights_.output, .bias = nullptr, .y = logits});
    if (spec_.logit_soft_cap > 0) soft_cap(context, {.x = logits, .cap = spec_.logit_soft_cap});
  }

 private:
  const DecoderSpec spec_;
  const ModelSpec model_spec_;
  const Widths widths_;
  DecoderWeights weights_;
  const DeviceTraits device_;
  const DType activation_dtype_;
};

int64_t Decoder::weight_bytes() const {
  int64_t bytes = weights_.embedding_matrix.packed_bytes();
  for_each_matrix(weights_, [&](const LinearWeight& weight) { bytes += weight.packed_bytes(); });
  return bytes;
}

int64_t Decoder::unpacked_bytes() const {
  int64_t bytes = 0;
  for_each_matrix(weights_, [&](const LinearWeight& weight) {
    if (!weight.is_packed()) bytes += weight.packed_bytes();
  });
  return bytes;
}

void Decoder::pack_more(int64_t bytes_min) {
  int64_t bytes = 0;
  for_each_matrix(weights_, [&](LinearWeight& weight) {
    if (weight.is_packed() || bytes >= bytes_min) return;
    bytes += weight.packed_bytes();
    weight.pack_now();
  });
}

int64_t Decoder::workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                                 int32_t thread_count) const {
  int64_t op_bytes = linear_workspace_bytes(logit_rows, weights_.output);
  for (const DecoderLayer& layer : weights_.layers) {
    op_bytes = std::max(
        op_bytes, attention_workspace_bytes(thread_count, layer.spec.head_dim, kv_length_max));
    const int64_t ffn_tokens = feed_forward_rows(tokens, device_);
    for (const auto& [linear, rows] :
         {std::pair(&layer.qkv, int64_t{tokens}), std::pair(&layer.attention_out, int64_t{tokens}),
          std::pair(&layer.gate_up, ffn_tokens), std::pair(&layer.down, ffn_tokens)}) {
      op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, linear->weight));
    }
  }
  ArenaPlaces places;
  DecoderScratch::place(places, spec_, widths_, tokens, activation_dtype_, device_);
  places.take<std::byte>(static_cast<size_t>(op_bytes));
  return places.bytes_for(scratch_parts_max(spec_));
}

DType activation_dtype(DeviceKind device, ComputeType compute) {
  if (device == DeviceKind::kCpu || compute == ComputeType::kFloat32) return DType::kF32;
  return compute == ComputeType::kFloat16 ? DType::kF16 : DType::kBF16;
}

}  // namespace

Result<std::unique_ptr<Model>> load_decoder(DecoderSpec spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options) {
  const DType activations = activation_dtype(device.kind(), options.compute);
  HR_RETURN_IF_ERROR(check_device_limits(spec, device.traits(), activations));
  HR_ASSIGN_OR_RETURN(DecoderWeights weights, load_decoder_weights(spec, source, device, options));
  return std::unique_ptr<Model>(
      std::make_unique<Decoder>(std::move(spec), std::move(weights), device.traits(), activations));
}

}  // namespace headrace
