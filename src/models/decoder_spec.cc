#include "models/decoder_spec.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/rope_table.h"

namespace headrace {
namespace {

// The tensors of one layer, in the order of the file formats' own writers.
class LayerTensors {
 public:
  LayerTensors(int32_t index, int64_t hidden, const DecoderLayerSpec& layer)
      : index_(index), hidden_(hidden), layer_(layer) {}

  std::vector<TensorSpec> list() && {
    const int64_t q = int64_t{layer_.heads} * layer_.head_dim;
    const int64_t kv = int64_t{layer_.kv_heads} * layer_.head_dim;
    add_norm("attn_norm", layer_.pre_norm);
    if (layer_.qkv == QkvTensors::kFused) {
      add_linear("attn_qkv", q + 2 * kv, hidden_, layer_.qkv_bias);
    } else {
      add_linear("attn_q", q, hidden_, layer_.qkv_bias);
      add_linear("attn_k", kv, hidden_, layer_.qkv_bias);
      add_linear("attn_v", kv, hidden_, layer_.qkv_bias);
    }
    if (layer_.qk_norm != QkNorm::kNone) {
      const bool heads = layer_.qk_norm == QkNorm::kHead;
      add("attn_q_norm.weight", Shape{heads ? layer_.head_dim : q});
      add("attn_k_norm.weight", Shape{heads ? layer_.head_dim : kv});
    }
    add_linear("attn_output", hidden_, q, layer_.attention_out_bias);
    add_norm("post_attention_norm", layer_.post_norm);
    add_norm("ffn_norm", layer_.pre_norm);
    add_feed_forward();
    add_norm("post_ffw_norm", layer_.post_norm);
    return std::move(tensors_);
  }

 private:
  void add(std::string_view part, const Shape& shape) {
    tensors_.push_back({fmt::format("blk.{}.{}", index_, part), shape});
  }
  void add_norm(std::string_view part, NormKind kind) {
    if (kind != NormKind::kNone) add(fmt::format("{}.weight", part), Shape{hidden_});
    if (kind == NormKind::kLayer) add(fmt::format("{}.bias", part), Shape{hidden_});
  }
  void add_linear(std::string_view part, int64_t rows, int64_t columns, bool bias) {
    add(fmt::format("{}.weight", part), Shape{rows, columns});
    if (bias) add(fmt::format("{}.bias", part), Shape{rows});
  }
  void add_feed_forward() {
    const int64_t ffn = layer_.ffn;
    if (layer_.feed_forward == FeedForward::kGated) {
      add_linear("ffn_gate", ffn, hidden_, layer_.ffn_bias);
    }
    const bool fused = layer_.feed_forward == FeedForward::kGatedFused;
    add_linear("ffn_up", fused ? 2 * ffn : ffn, hidden_, layer_.ffn_bias);
    add_linear("ffn_down", hidden_, ffn, layer_.ffn_bias);
  }

  const int32_t index_;
  const int64_t hidden_;
  const DecoderLayerSpec& layer_;
  std::vector<TensorSpec> tensors_;
};

}  // namespace

DecoderSpec uniform_decoder(const ModelConfig& config) {
  const float root = std::sqrt(static_cast<float>(config.head_dim));
  const DecoderLayerSpec layer{
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim,
      .ffn = config.ffn,
      .attention_scale = config.attention_scale > 0 ? config.attention_scale : 1.0f / root,
      .attention_soft_cap = config.attention_soft_cap,
      .qkv = config.fused_qkv ? QkvTensors::kFused : QkvTensors::kSeparate,
      .qkv_bias = config.qkv_bias,
      .attention_out_bias = config.attention_out_bias,
      .feed_forward = config.fused_gate_up ? FeedForward::kGatedFused : FeedForward::kGated,
      .ffn_bias = config.ffn_bias};
  DecoderSpec spec{.model = {.architecture = config.architecture,
                             .vocab_size = config.vocab,
                             .hidden_size = config.hidden,
                             .layer_count = config.layers,
                             .context_length = config.context_length},
                   .ropes = {rope_table(config)},
                   .layers = std::vector(static_cast<size_t>(config.layers), layer),
                   .norm_eps = config.rms_eps,
                   .embedding_scale = config.embedding_scale > 0 ? config.embedding_scale : 1.0f,
                   .residual_scale = config.residual_scale,
                   .logit_scale = 1.0f / config.logit_divisor,
                   .logit_soft_cap = config.logit_soft_cap,
                   .tied_embeddings = config.tied_embeddings,
                   .qk_rows_interleaved = config.qk_rows_interleaved};
  for_each_layer(spec, [&](DecoderLayerSpec& each, int32_t i) {
    const bool slides =
        config.sliding_layers.empty() || config.sliding_layers[static_cast<size_t>(i)];
    each.window = slides ? config.window : 0;
  });
  return spec;
}

void slide_all_but_each(DecoderSpec& spec, const ModelConfig& config, int32_t period) {
  if (!config.sliding_layers.empty()) return;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if ((i + 1) % period == 0) layer.window = 0;
  });
}

ModelSpec model_spec(const DecoderSpec& spec) {
  ModelSpec model = spec.model;
  for (const DecoderLayerSpec& layer : spec.layers) {
    model.query_heads = std::max(model.query_heads, layer.heads);
    model.kv.push_back(
        {.kv_heads = layer.kv_heads, .head_dim = layer.head_dim, .window = layer.window});
  }
  return model;
}

std::vector<TensorSpec> decoder_tensors(const DecoderSpec& spec) {
  const int64_t hidden = spec.model.hidden_size, vocab = spec.model.vocab_size;
  std::vector<TensorSpec> tensors = {{"token_embd.weight", Shape{vocab, hidden}},
                                     {"output_norm.weight", Shape{hidden}}};
  if (spec.output_norm == NormKind::kLayer) tensors.push_back({"output_norm.bias", Shape{hidden}});
  for (const RopeTable& rope : spec.ropes) {
    const auto count = static_cast<int64_t>(rope.inv_freq.size());
    for (const std::string& name : {rope.divisors, rope.other_divisors}) {
      if (!name.empty()) tensors.push_back({name, Shape{count}});
    }
  }
  if (!spec.tied_embeddings) tensors.push_back({"output.weight", Shape{vocab, hidden}});
  for (int32_t i = 0; i < spec.model.layer_count; ++i) {
    auto layer = LayerTensors(i, hidden, spec.layers[static_cast<size_t>(i)]).list();
    tensors.insert(tensors.end(), std::make_move_iterator(layer.begin()),
                   std::make_move_iterator(layer.end()));
  }
  return tensors;
}

}  // namespace headrace
