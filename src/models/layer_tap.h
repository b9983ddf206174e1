// LayerTap: what a pass leaves behind a layer for who reads hidden states in the middle of a model
// (draft heads, early exit, offload, probes). It is data in fixed places, so that a step with taps
// is recorded and keeps rows like any other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace headrace {

struct LayerTap {
  int32_t layer = 0;
  // Gets the hidden rows of the step, in its order; empty: none are copied. [T or more, D], dense,
  // of the model's activation type, in the device's memory. T is what a recorded step is padded to.
  // Behind a last layer that keeps rows (ForwardBatch::kept) it gets these alone.
  TensorView hidden = {};
  // Of Stream::create_timer(): recorded on the pass's stream when the layer and the copy are done,
  // in a recorded step at each replay. Null: none is.
  Event* reached = nullptr;
};
using LayerTaps = std::span<const LayerTap>;  // in any order; a layer may have several

inline bool has_tap(LayerTaps taps, int32_t layer) {
  return std::ranges::any_of(taps, [&](const LayerTap& tap) { return tap.layer == layer; });
}

// What a pass does behind `layer`, of which these are the hidden rows, dense.
inline void leave_at_taps(Stream& stream, LayerTaps taps, int32_t layer,
                          const ConstTensorView& hidden) {
  for (const LayerTap& tap : taps) {
    if (tap.layer != layer) continue;
    if (tap.hidden.data != nullptr) {
      CHECK(tap.hidden.dtype == hidden.dtype && tap.hidden.columns() == hidden.columns());
      CHECK(tap.hidden.row_stride == hidden.row_stride && tap.hidden.rows() >= hidden.rows());
      stream.copy(tap.hidden.data, hidden.data, hidden.rows() * hidden.row_stride);
    }
    if (tap.reached != nullptr) stream.record(*tap.reached);
  }
}

}  // namespace headrace
