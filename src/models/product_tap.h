// ProductTap: what a pass shows of its products to who measures what they multiply (calibration of
// quantisers). It sees the matrices that Model::adapter_sites() lists, which then run alone, behind
// their norm.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace headrace {

class ProductTap {
 public:
  virtual ~ProductTap() = default;
  // Rows x [rows, K] that product LinearLayer::site multiplies; some rows of a batch at a time,
  // each once. The view is valid during the call. On the thread of the pass.
  virtual void multiplied(int32_t site, const ConstTensorView& x) = 0;
};

}  // namespace headrace
