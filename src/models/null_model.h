// NullModel: the sizes of a model and nothing of its arithmetic. For the null device
// (tensor/device.h), on which the engine runs as on a GPU.
#pragma once

#include <utility>

#include "models/model.h"

namespace headrace {

class NullModel final : public Model {
 public:
  explicit NullModel(ModelSpec spec) : spec_(std::move(spec)) {}

  const ModelSpec& spec() const override { return spec_; }
  DType activation_dtype() const override { return DType::kBF16; }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes(int32_t, int32_t, int32_t, int32_t) const override { return 0; }

  void embed(OpContext&, const ForwardBatch&, TensorView) const override {}
  void layers(OpContext&, const ForwardBatch&, LayerRange, std::span<const KvLayerView>, TensorView,
              LayerTaps) const override {}
  void normalise_rows(OpContext&, TensorView) const override {}
  void head(OpContext&, TensorView, TensorView) const override {}

 private:
  const ModelSpec spec_;
};

}  // namespace headrace
