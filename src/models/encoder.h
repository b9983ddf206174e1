// Encoder: BERT and its kin. Learned positions, full attention, LayerNorm behind each sum (of
// ModernBERT: weights/encoder_config.h), and a pooled vector a text, or the logits of a
// classifier's head. Texts of many lengths are one packed batch without padding. There is no cache
// and nothing is sampled, so an encoder is no Model and needs no scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/encoder_batch.h"
#include "models/layer_weights.h"
#include "ops/attention/full_attention.h"
#include "weights/encoder_config.h"
#include "weights/weight_source.h"

namespace headrace {

struct EncoderLoadOptions {
  int32_t length_max = 0;  // tokens of a text; 0: the model's
  // Matrices become this while they are packed, a block type or BF16; empty: all arithmetic is in
  // fp32.
  std::optional<DType> quantise_to;
};

// Const after load, any thread; one run at a time has the workspace.
class Encoder {
 public:
  // `source` has the tensors under GGUF's names and outlives the encoder. Errors name source and
  // tensor: missing, of another shape, or one that would be ignored. kUnsupported on a GPU.
  static Result<std::unique_ptr<Encoder>> load(const EncoderConfig& config,
                                               const WeightSource& source, Device& device,
                                               const EncoderLoadOptions& options);

  const EncoderConfig& config() const { return config_; }
  int64_t weight_bytes() const;
  // That encode() takes for `tokens` rows.
  int64_t workspace_bytes(int32_t tokens, int32_t thread_count) const;

  // The last layer's rows. A text's rows depend on that text alone, bit for bit. `go_on` (or null)
  // is asked twice a layer; once it says no, the rows are worth nothing and false is returned.
  bool encode(OpContext& context, const EncoderBatch& batch, TensorView hidden /* [T, D] */,
              const std::function<bool()>& go_on = nullptr) const;
  // A vector a text, of length 1 where the configuration says so.
  void pool(OpContext& context, ConstTensorView hidden /* [T, D] */,
            std::span<const RowSequence> sequences, TensorView vectors /* [S, D] */) const;
  // A logit a class, of the first tokens' rows: out(tanh(dense(row))); of ModernBERT
  // out(norm(gelu(dense(row)))), also of the mean of the rows. REQUIRES: there is a head
  void classify(OpContext& context, ConstTensorView hidden /* [T, D] */,
                std::span<const RowSequence> sequences, TensorView logits /* [S, classes] */) const;

 private:
  friend class EncoderLoader;
  struct Layer {
    LinearLayer qkv, out;  // [3D, D], [D, D]
    NormWeights attention_norm;
    LinearLayer up, down;  // [F, D], with gates [2F, D], which go first; [D, F]
    NormWeights output_norm;
    bool local = false;  // ModernBERT: it sees what is near alone
  };
  // [length_max, d / 2] each: what the halves of a head are rotated by, at a text's positions.
  struct Rotation {
    std::vector<float> cosines, sines;
  };
  static Rotation rotation(double theta, int32_t head_dim, int32_t length_max);
  explicit Encoder(const EncoderConfig& config) : config_(config) {}
  bool has_positions() const { return !config_.modern && !config_.gated; }  // learned ones
  bool rotates() const { return config_.modern || (config_.gated && config_.gated->theta > 0); }
  std::vector<const LinearLayer*> matrices() const;
  void embed(OpContext& context, const EncoderBatch& batch, const TensorView& hidden,
             const TensorView& scratch) const;
  void attend(OpContext& context, const Layer& layer, const EncoderBatch& batch,
              const TensorView& hidden, const TensorView& qkv, const TensorView& attended) const;
  void attend_rows(OpContext& context, const Layer& layer, const EncoderBatch& batch,
                   const TensorView& qkv, const TensorView& attended) const;
  void rotate(OpContext& context, const Rotation& rotation, const EncoderBatch& batch,
              const TensorView& qkv) const;
  // The feed-forward network's half of a layer.
  void transform(OpContext& context, const Layer& layer, const TensorView& hidden,
                 const TensorView& branch, const TensorView& inner) const;

  EncoderConfig config_;
  ConstTensorView tokens_;  // [V, D], the source's
  // [length_max, D]: a text's positions and the first token type; as many again of the second type
  // where the configuration has one. Without learned positions [1, D], the type alone.
  DeviceVector positions_;
  DeviceVector distances_;  // [heads, 2 length_max - 1]: biases by distance, or none
  NormWeights embedding_norm_, final_norm_, head_norm_;  // the last two of ModernBERT
  Rotation rotation_, local_rotation_;                   // the same
  std::vector<Layer> layers_;
  LinearLayer head_dense_, head_out_;  // [D, D], [classes, D], of a classifier
};

}  // namespace headrace
