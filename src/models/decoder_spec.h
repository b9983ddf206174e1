// What a decoder-only transformer is made of, as plain data: an architecture turns a ModelConfig
// into a DecoderSpec, and one Decoder (models/decoder.h) runs them all.
//
// A layer is
//   branch = attention(pre_norm(x));      x := x + residual_scale * post_norm(branch)
//   branch = feed_forward(pre_norm(x));   x := x + residual_scale * post_norm(branch)
// where each norm may be absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/rows/activation.h"

namespace headrace {

enum class NormKind {
  kNone,
  kRms,
  kLayer,  // LayerNorm, with a bias
};

enum class QkNorm {
  kNone,
  kHead,  // RMSNorm of each head's components (Qwen3, Gemma 3)
  kRow,   // RMSNorm over all heads of a row (OLMo 2 and 3)
};

enum class QkvTensors {
  kSeparate,  // attn_q, attn_k, attn_v
  kFused,     // attn_qkv
};

enum class FeedForward {
  kGated,       // down(act(gate(x)) * up(x)): ffn_gate, ffn_up, ffn_down
  kGatedFused,  // the same, with gate and up stacked in ffn_up
  kPlain,       // down(act(up(x)))
};

// One rotation, shared by the layers that name it.
struct RopeTable {
  std::vector<double> inv_freq;  // [rope_dim / 2], radians a position; empty: no rotation
  float scale = 1.0f;            // of cos and sin
  std::string divisors;          // a tensor [rope_dim / 2] that divides inv_freq; empty = none
  std::string other_divisors;    // one that does in texts of other lengths: there, and not read
};

struct DecoderLayerSpec {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;
  int32_t window = 0;               // > 0: sliding
  int32_t rope = 0;                 // index into DecoderSpec::ropes
  float attention_scale = 0.0f;     // of scores
  float attention_soft_cap = 0.0f;  // 0 = none
  NormKind pre_norm = NormKind::kRms;
  NormKind post_norm = NormKind::kNone;
  QkNorm qk_norm = QkNorm::kNone;
  QkvTensors qkv = QkvTensors::kSeparate;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  FeedForward feed_forward = FeedForward::kGated;
  Activation activation = Activation::kSilu;
  bool ffn_bias = false;
};

struct DecoderSpec {
  ModelSpec model;
  std::vector<RopeTable> ropes;
  std::vector<DecoderLayerSpec> layers;  // [model.layer_count]
  NormKind output_norm = NormKind::kRms;
  float norm_eps = 0.0f;
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;
  float logit_scale = 1.0f;
  float logit_soft_cap = 0.0f;  // 0 = none
  bool tied_embeddings = false;
  // Rows of q and k lie in the order of interleaved rotation, as GGUF files of some architectures
  // have them: undone at load.
  bool qk_rows_interleaved = false;
};

// What every decoder takes from the configuration as it is, the layers alike: sizes, biases, one
// rotation, scales (scores by 1 / sqrt(head_dim) where the file does not say), a window in all
// layers, or those that the file names. An architecture starts from it.
DecoderSpec uniform_decoder(const ModelConfig& config);

// Applies `change` to each layer.
template <class Change>
void for_each_layer(DecoderSpec& spec, Change change) {
  for (size_t i = 0; i < spec.layers.size(); ++i) change(spec.layers[i], static_cast<int32_t>(i));
}

// Which layers slide where a file does not say it: all but each `period`-th.
void slide_all_but_each(DecoderSpec& spec, const ModelConfig& config, int32_t period);

// Fills in what follows from the layers: model.kv, model.query_heads.
ModelSpec model_spec(const DecoderSpec& spec);

// Every tensor of the model, by GGUF name.
std::vector<TensorSpec> decoder_tensors(const DecoderSpec& spec);

}  // namespace headrace
