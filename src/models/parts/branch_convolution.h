// What a part of a layer makes of the rows of a sequence, convolved by channel and added to itself
// (Inkling): y_t := y_t + sum over j of w_j y_{t - taps + 1 + j}. Its state is the last taps - 1
// rows. Every rank has all channels.
#pragma once

#include <string>

#include "models/layer_tensors.h"
#include "models/parts/state_parts.h"
#include "ops/states/causal_conv.h"

namespace headrace {

class BranchConvolution {
 public:
  BranchConvolution(int64_t hidden, int32_t taps) : hidden_(hidden), taps_(taps) {}

  int64_t state_bytes() const { return causal_conv_state_bytes(taps_, hidden_); }
  // Tensor name.weight [D, taps]. `scale_name`: of one number that the part's rows are multiplied
  // by before; null: by nothing.
  Status load(LayerTensors& tensors, const std::string& name, const char* scale_name = nullptr) {
    float scale = 1.0f;
    if (scale_name != nullptr) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> read,
                          tensors.values(std::string(scale_name) + ".weight", Shape{1}));
      scale = read.front();
    }
    const ConvolvedChannels all{.name = name, .channels = hidden_};
    HR_ASSIGN_OR_RETURN(weights_, load_residual_taps(tensors, std::span(&all, 1), taps_, scale));
    return ok_status();
  }
  // CPU: in place, of all rows [T, D] of the batch.
  void run(OpContext& context, const StateView& states, const TensorView& rows) const {
    causal_conv(context, {.x = rows,
                          .weight = weights_.data(),
                          .bias = nullptr,
                          .taps = taps_,
                          .states = states,
                          .out = rows});
  }

 private:
  int64_t hidden_;
  int32_t taps_;
  DeviceVector weights_;  // [taps, D]
};

}  // namespace headrace
