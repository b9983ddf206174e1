// How rows of a text become one vector. On the CPU, in f32.
#pragma once

#include <span>

#include "tensor/tensor_view.h"
#include "weights/pooling_config.h"

namespace headrace {

// `out` [D] of the rows of one text [R, D].
void pool_rows(Pooling pooling, const ConstTensorView& rows, std::span<float> out);

// Makes a vector's length 1; one of zeros stays.
void scale_to_unit(std::span<float> vector);

}  // namespace headrace
