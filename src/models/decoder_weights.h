// The weights of a Decoder in device memory, and their load from any WeightSource.
#pragma once

#include <vector>

#include "models/decoder_spec.h"
#include "ops/packing/packed_weight.h"
#include "tensor/device.h"

namespace headrace {

// f32 values in device memory; empty: the model has none here.
class DeviceVector {
 public:
  DeviceVector() = default;
  // Copies `values` to the device; returns when they may be read.
  static Result<DeviceVector> upload(Device& device, std::span<const float> values);
  const float* data() const { return reinterpret_cast<const float*>(buffer_.data()); }  // or null

 private:
  Buffer buffer_;
};

struct NormWeights {
  NormKind kind = NormKind::kNone;
  DeviceVector weight;  // [D]
  DeviceVector bias;    // [D], of kLayer
};

struct LinearLayer {
  LinearWeight weight;  // [N, K]
  DeviceVector bias;    // [N] or empty
};

struct DecoderLayer {
  DecoderLayerSpec spec;
  NormWeights attention_norm;       // [D]
  LinearLayer qkv;                  // [(Hq + 2 Hkv) d, D]
  DeviceVector q_norm;              // [d] of kHead, [Hq d] of kRow
  DeviceVector k_norm;              // [d] of kHead, [Hkv d] of kRow
  LinearLayer attention_out;        // [D, Hq d]
  NormWeights attention_post_norm;  // [D]
  NormWeights ffn_norm;             // [D]
  LinearLayer gate_up;              // [2F, D]; [F, D] of kPlain
  LinearLayer down;                 // [D, F]
  NormWeights ffn_post_norm;        // [D]
};

struct RopeWeights {
  Buffer inv_freq;  // [count] double
  int64_t count = 0;
  float scale = 1.0f;
};

struct DecoderWeights {
  // [V, D]: on the CPU the file's own rows, or no data where the head has them as exactly; on a GPU
  // a matrix below.
  ConstTensorView embedding;
  LinearWeight embedding_matrix;  // [V, D]; CUDA, unless the head is tied
  std::vector<RopeWeights> ropes;
  std::vector<DecoderLayer> layers;
  NormWeights output_norm;  // [D], logit_scale included
  LinearWeight output;      // [V, D]
};

// visit(LinearWeight&) for all that a step multiplies by, in its order.
template <class Weights, class Visit>
void for_each_matrix(Weights& weights, const Visit& visit) {
  for (auto& layer : weights.layers) {
    for (auto* linear : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      visit(linear->weight);
    }
  }
  visit(weights.output);
}

// Errors name the source and the tensor.
Result<DecoderWeights> load_decoder_weights(const DecoderSpec& spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options);

}  // namespace headrace
