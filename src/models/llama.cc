#include "models/llama.h"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope_kv.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

struct LlamaLayer {
  std::vector<float> attention_norm;  // [D]
  LinearWeight qkv;                   // [(Hq + 2 Hkv) d, D]
  LinearWeight attention_out;         // [D, Hq d]
  std::vector<float> ffn_norm;        // [D]
  LinearWeight gate_up;               // [2F, D]
  LinearWeight down;                  // [D, F]
};

class Llama final : public Model {
 public:
  Llama(ModelConfig config, ModelSpec spec) : config_(std::move(config)), spec_(std::move(spec)) {}

  const ModelSpec& spec() const override { return spec_; }
  int64_t weight_bytes() const override;
  int64_t workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                          int32_t thread_count) const override;

  void embed(OpContext& context, const ForwardBatch& batch, TensorView hidden) const override {
    embedding(context, {.tokens = batch.tokens, .table = embedding_, .out = hidden});
  }
  void layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
              std::span<const KvLayerView> kv, TensorView hidden,
              const ForwardTaps& taps) const override;
  void head(OpContext& context, TensorView rows, TensorView logits) const override;

 private:
  friend class LlamaLoader;

  // What the layers of one step share. T = tokens of the step.
  struct Scratch {
    TensorView cos, sin;       // [T, rope_dim / 2]
    TensorView norm;           // [T, D]
    TensorView qkv;            // [T, (Hq + 2 Hkv) d]
    TensorView attention_out;  // [T, Hq d]
    TensorView gate_up;        // [T, 2F]
    TensorView activated;      // [T, F]
  };
  Scratch take_scratch(Workspace& workspace, int64_t tokens) const;
  void attention_block(OpContext& context, const ForwardBatch& batch, int32_t layer,
                       const KvLayerView& kv, const Scratch& scratch, TensorView hidden) const;
  void ffn_block(OpContext& context, int32_t layer, const Scratch& scratch,
                 TensorView hidden) const;

  int64_t q_width() const { return int64_t{config_.heads} * config_.head_dim; }
  int64_t kv_width() const { return int64_t{config_.kv_heads} * config_.head_dim; }

  const ModelConfig config_;
  const ModelSpec spec_;
  ConstTensorView embedding_;     // [V, D], in the file
  std::vector<double> inv_freq_;  // [rope_dim / 2]
  std::vector<LlamaLayer> layers_;
  std::vector<float> output_norm_;  // [D]
  LinearWeight output_;             // [V, D]
};

Llama::Scratch Llama::take_scratch(Workspace& workspace, int64_t tokens) const {
  const auto take = [&](int64_t columns) {
    return workspace.take_tensor(DType::kF32, Shape{tokens, columns});
  };
  const auto half = static_cast<int64_t>(inv_freq_.size());
  return {.cos = take(half),
          .sin = take(half),
          .norm = take(config_.hidden),
          .qkv = take(q_width() + 2 * kv_width()),
          .attention_out = take(q_width()),
          .gate_up = take(2 * int64_t{config_.ffn}),
          .activated = take(config_.ffn)};
}

void Llama::layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
                   std::span<const KvLayerView> kv, TensorView hidden,
                   const ForwardTaps& taps) const {
  Workspace::Mark mark(context.workspace);
  const Scratch scratch =
      take_scratch(context.workspace, static_cast<int64_t>(batch.tokens.size()));
  rope_angles(batch.positions, inv_freq_, scratch.cos, scratch.sin);
  for (int32_t layer = range.first; layer < range.last; ++layer) {
    attention_block(context, batch, layer, kv[static_cast<size_t>(layer)], scratch, hidden);
    ffn_block(context, layer, scratch, hidden);
    if (taps.after_layer) taps.after_layer(layer, hidden);
  }
}

void Llama::attention_block(OpContext& context, const ForwardBatch& batch, int32_t layer,
                            const KvLayerView& kv, const Scratch& scratch,
                            TensorView hidden) const {
  const LlamaLayer& weights = layers_[static_cast<size_t>(layer)];
  const auto group_index = static_cast<size_t>(batch.layer_group[static_cast<size_t>(layer)]);
  const ForwardBatch::Group& group = batch.groups[group_index];
  rms_norm(context, {.x = hidden,
                     .residual = {},
                     .weight = weights.attention_norm.data(),
                     .eps = config_.rms_eps,
                     .out = scratch.norm});
  linear(context, {.x = scratch.norm, .weight = &weights.qkv, .bias = nullptr, .y = scratch.qkv});
  rope_kv(context, {.qkv = scratch.qkv,
                    .cos = scratch.cos,
                    .sin = scratch.sin,
                    .style = RopeStyle::kHalf,
                    .query_heads = config_.heads,
                    .kv = kv,
                    .slots = group.slots});
  const ConstTensorView q(scratch.qkv.data, DType::kF32, Shape{scratch.qkv.rows(), q_width()},
                          scratch.qkv.row_stride);
  attention(context, {.q = q,
                      .kv = kv,
                      .sequences = group.sequences,
                      .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                      .window = spec_.kv[static_cast<size_t>(layer)].window,
                      .out = scratch.attention_out});
  linear(context, {.x = scratch.attention_out,
                   .weight = &weights.attention_out,
                   .bias = nullptr,
                   .y = hidden,
                   .output = LinearOutput::kAccumulate});
}

void Llama::ffn_block(OpContext& context, int32_t layer, const Scratch& scratch,
                      TensorView hidden) const {
  const LlamaLayer& weights = layers_[static_cast<size_t>(layer)];
  rms_norm(context, {.x = hidden,
                     .residual = {},
                     .weight = weights.ffn_norm.data(),
                     .eps = config_.rms_eps,
                     .out = scratch.norm});
  linear(context,
         {.x = scratch.norm, .weight = &weights.gate_up, .bias = nullptr, .y = scratch.gate_up});
  gated_activation(context, {.gate_up = scratch.gate_up, .out = scratch.activated});
  linear(context, {.x = scratch.activated,
                   .weight = &weights.down,
                   .bias = nullptr,
                   .y = hidden,
                   .output = LinearOutput::kAccumulate});
}

void Llama::head(OpContext& context, TensorView rows, TensorView logits) const {
  rms_norm(context, {.x = rows,
                     .residual = {},
                     .weight = output_norm_.data(),
                     .eps = config_.rms_eps,
                     .out = rows});
  linear(context, {.x = rows, .weight = &output_, .bias = nullptr, .y = logits});
}

int64_t Llama::weight_bytes() const {
  int64_t bytes = output_.packed_bytes();
  for (const LlamaLayer& layer : layers_) {
    bytes += layer.qkv.packed_bytes() + layer.attention_out.packed_bytes() +
             layer.gate_up.packed_bytes() + layer.down.packed_bytes();
  }
  return bytes;
}

int64_t Llama::workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                               int32_t thread_count) const {
  const int64_t columns = 2 * static_cast<int64_t>(inv_freq_.size()) + config_.hidden + q_width() +
                          2 * kv_width() + q_width() + 3 * int64_t{config_.ffn};
  const LlamaLayer& layer = layers_.front();
  int64_t op_bytes = attention_workspace_bytes(thread_count, config_.head_dim, kv_length_max);
  for (const LinearWeight* weight :
       {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
    op_bytes = std::max(op_bytes, linear_workspace_bytes(tokens, *weight));
  }
  op_bytes = std::max(op_bytes, linear_workspace_bytes(logit_rows, output_));
  constexpr int64_t kAlignmentSlack = 16 * 256;
  return tokens * columns * 4 + op_bytes + kAlignmentSlack;
}

// ---- load -------------------------------------------------------------------------------------

// GGUF files of this architecture hold the rows of q and k in the order (pair, half) of the
// original interleaved rotation; ours, as HF's, is (half, pair). Row r of a head comes from file
// row:
std::vector<int32_t> half_from_interleaved(int32_t heads, int32_t head_dim) {
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(heads) * static_cast<size_t>(head_dim));
  const int32_t half = head_dim / 2;
  for (int32_t head = 0; head < heads; ++head) {
    for (int32_t r = 0; r < head_dim; ++r) {
      order.push_back(head * head_dim + 2 * (r % half) + r / half);
    }
  }
  return order;
}

class LlamaLoader {
 public:
  LlamaLoader(const ModelConfig& config, ModelSpec spec, const WeightSource& source, Device& device,
              const ModelLoadOptions& options)
      : config_(config),
        source_(source),
        device_(device),
        options_(options),
        model_(std::make_unique<Llama>(config, std::move(spec))) {
    if (config.qk_rows_interleaved) {
      q_order_ = half_from_interleaved(config.heads, config.head_dim);
      k_order_ = half_from_interleaved(config.kv_heads, config.head_dim);
    }
  }

  Result<std::unique_ptr<Model>> load() {
    for (int32_t i = 0; i < config_.rope_dim / 2; ++i) {
      model_->inv_freq_.push_back(std::pow(config_.rope_theta, -2.0 * i / config_.rope_dim));
    }
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      HR_RETURN_IF_ERROR(load_layer(layer));
      if (options_.progress) {
        options_.progress(static_cast<double>(layer + 1) / (config_.layers + 1));
      }
    }
    const Shape table{config_.vocab, config_.hidden};
    HR_ASSIGN_OR_RETURN(model_->output_norm_, vector("output_norm.weight"));
    const std::string output = config_.tied_embeddings ? "token_embd.weight" : "output.weight";
    HR_ASSIGN_OR_RETURN(model_->output_, linear_weight({{output, table, {}}}));
    // Last: packing a tied head gives the table back to its source.
    HR_ASSIGN_OR_RETURN(model_->embedding_, tensor("token_embd.weight", table));
    if (options_.progress) options_.progress(1.0);
    return std::unique_ptr<Model>(std::move(model_));
  }

 private:
  struct Part {
    std::string name;
    Shape shape;
    std::span<const int32_t> row_order;
  };

  Status load_layer(int32_t index) {
    const auto name = [&](std::string_view part) {
      return fmt::format("blk.{}.{}.weight", index, part);
    };
    const int64_t hidden = config_.hidden, ffn = config_.ffn;
    const Shape q{model_->q_width(), hidden}, kv{model_->kv_width(), hidden};
    LlamaLayer layer;
    HR_ASSIGN_OR_RETURN(layer.attention_norm, vector(name("attn_norm")));
    HR_ASSIGN_OR_RETURN(layer.qkv, linear_weight({{name("attn_q"), q, q_order_},
                                                  {name("attn_k"), kv, k_order_},
                                                  {name("attn_v"), kv, {}}}));
    HR_ASSIGN_OR_RETURN(
        layer.attention_out,
        linear_weight({{name("attn_output"), Shape{hidden, model_->q_width()}, {}}}));
    HR_ASSIGN_OR_RETURN(layer.ffn_norm, vector(name("ffn_norm")));
    HR_ASSIGN_OR_RETURN(layer.gate_up, linear_weight({{name("ffn_gate"), Shape{ffn, hidden}, {}},
                                                      {name("ffn_up"), Shape{ffn, hidden}, {}}}));
    HR_ASSIGN_OR_RETURN(layer.down, linear_weight({{name("ffn_down"), Shape{hidden, ffn}, {}}}));
    model_->layers_.push_back(std::move(layer));
    return ok_status();
  }

  Result<ConstTensorView> tensor(const std::string& name, const Shape& expected) {
    return source_.get(name, expected);
  }

  Result<std::vector<float>> vector(const std::string& name) {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, tensor(name, Shape{config_.hidden}));
    std::vector<float> values(static_cast<size_t>(config_.hidden));
    dequantise_row(view, 0, values.data());
    return values;
  }

  Result<LinearWeight> linear_weight(const std::vector<Part>& parts) {
    std::vector<LinearSource> sources;
    for (const Part& part : parts) {
      HR_ASSIGN_OR_RETURN(const ConstTensorView view, tensor(part.name, part.shape));
      sources.push_back({view, part.row_order});
    }
    const LinearCompute compute =
        options_.compute == ComputeType::kFloat32 ? LinearCompute::kFloat32 : LinearCompute::kFast;
    HR_ASSIGN_OR_RETURN(LinearWeight weight, LinearWeight::pack(device_, sources, compute));
    for (const LinearSource& source : sources) source_.release(source.weight);
    return weight;
  }

  const ModelConfig& config_;
  const WeightSource& source_;
  Device& device_;
  const ModelLoadOptions& options_;
  std::unique_ptr<Llama> model_;
  std::vector<int32_t> q_order_, k_order_;
};

}  // namespace

Result<ModelSpec> parse_llama(const ModelConfig& config) {
  ModelSpec spec{.architecture = config.architecture,
                 .vocab_size = static_cast<int32_t>(config.vocab),
                 .hidden_size = static_cast<int32_t>(config.hidden),
                 .layer_count = static_cast<int32_t>(config.layers),
                 .query_heads = static_cast<int32_t>(config.heads),
                 .context_length = static_cast<int32_t>(config.context_length)};
  const LayerKv kv{.kv_heads = static_cast<int32_t>(config.kv_heads),
                   .head_dim = static_cast<int32_t>(config.head_dim)};
  spec.kv.assign(static_cast<size_t>(config.layers), kv);
  return spec;
}

std::vector<TensorSpec> llama_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden, ffn = config.ffn;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  std::vector<TensorSpec> tensors = {{"token_embd.weight", Shape{config.vocab, hidden}},
                                     {"output_norm.weight", Shape{hidden}}};
  if (!config.tied_embeddings) tensors.push_back({"output.weight", Shape{config.vocab, hidden}});
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](std::string_view part, Shape shape) {
      tensors.push_back({fmt::format("blk.{}.{}.weight", layer, part), shape});
    };
    add("attn_norm", Shape{hidden});
    add("attn_q", Shape{q, hidden});
    add("attn_k", Shape{kv, hidden});
    add("attn_v", Shape{kv, hidden});
    add("attn_output", Shape{hidden, q});
    add("ffn_norm", Shape{hidden});
    add("ffn_gate", Shape{ffn, hidden});
    add("ffn_up", Shape{ffn, hidden});
    add("ffn_down", Shape{hidden, ffn});
  }
  return tensors;
}

Result<std::unique_ptr<Model>> load_llama(const ModelConfig& config, const WeightSource& weights,
                                          Device& device, const ModelLoadOptions& options) {
  HR_ASSIGN_OR_RETURN(ModelSpec spec, parse_llama(config));
  return LlamaLoader(config, std::move(spec), weights, device, options).load();
}

}  // namespace headrace
