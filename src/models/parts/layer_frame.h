// A frame: what a layer does to its rows around its mixer and its network, where that is no branch:
// multiplies them, reads of the token itself, keeps streams of rows beside each other. It works on
// the rows and on what is carried from layer to layer (parts/carried_rows.h).
#pragma once

#include "models/parts/layer_part.h"

namespace headrace {

// R = all rows of the batch, or behind the last layer's mixer those that are read.
struct FrameRun {
  OpContext& context;
  TensorView x;                   // [R, D]
  TensorView carried;             // [R, CarriedRows::columns()]
  const NormWeights& mixer_norm;  // of the layer's mixer
};

// Thread-safety: as LayerPart.
class LayerFrame {
 public:
  virtual ~LayerFrame() = default;
  virtual Status load(LayerTensors& tensors) = 0;
  virtual std::vector<LinearWeight*> matrices() = 0;
  // Of the workspace, what one of these takes at most.
  virtual int64_t workspace_bytes(int64_t rows) const = 0;
  virtual void before(const FrameRun& /*run*/) const {}   // the mixer
  virtual void between(const FrameRun& /*run*/) const {}  // the mixer and the network
  virtual void after(const FrameRun& run) const = 0;      // the network
};

}  // namespace headrace
