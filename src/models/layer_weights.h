// Weights of a layer in device memory, and the two ops that take them along: a product and a norm.
#pragma once

#include <span>

#include "base/status.h"
#include "ops/op.h"
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

// A copy of `bytes` in the memory of `device`, which may be read when this returns.
Result<Buffer> upload_bytes(Device& device, std::span<const std::byte> bytes);

enum class NormKind {
  kNone,
  kRms,
  kRmsBare,      // without a weight (NanoChat)
  kLayer,        // LayerNorm, with a bias
  kLayerNoBias,  // with a weight alone (Cohere)
  kLayerBare,    // with neither (OLMo)
};
inline bool is_layer_norm(NormKind kind) {
  return kind != NormKind::kNone && kind != NormKind::kRms && kind != NormKind::kRmsBare;
}
inline bool is_bare(NormKind kind) {
  return kind == NormKind::kRmsBare || kind == NormKind::kLayerBare;
}

struct LinearLayer {
  LinearWeight weight;  // [N, K]
  DeviceVector bias;    // [N] or empty
  int32_t site = -1;    // of Model::adapter_sites(); -1: it takes no adapters
};

// What normalised rows y are multiplied by: sigmoid(up silu(down y)) (A.X-K2).
struct NormGate {
  int32_t rank = 0;  // 0: there is none
  LinearLayer down;  // [rank, D]
  LinearLayer up;    // [D, rank]

  // Of the workspace, what gate_rows() takes.
  int64_t workspace_bytes(int64_t rows) const;
};

struct NormWeights {
  NormKind kind = NormKind::kNone;
  float eps = 0.0f;
  DeviceVector weight;  // [D], as the bias of constants where the model has none
  DeviceVector bias;    // [D], of LayerNorms
  float scale = 1.0f;   // that the weights of an RMSNorm are multiplied by at load
  NormGate gate;        // of norms before a part
};

// x := x + residual_scale * residual, where there is one; out = norm(x).
void normalise(OpContext& context, const NormWeights& norm, const TensorView& x,
               const ConstTensorView& residual, float residual_scale, const TensorView& out);

// y [T, D] := y * sigmoid(up silu(down y)).
void gate_rows(OpContext& context, const NormGate& gate, const TensorView& y);

// Whether a measurement asks for ops that do one thing each (OpHooks::unfused).
inline bool runs_unfused(const OpContext& context) {
  return context.hooks != nullptr && context.hooks->unfused;
}

// y = x W^T (+ bias); unfused, the matrices of a stack one by one.
void multiply(OpContext& context, const LinearLayer& layer, const ConstTensorView& x,
              const TensorView& y);

}  // namespace headrace
