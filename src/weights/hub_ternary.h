// Ternary matrices of BitNet: M.weight [rows / 4, columns] of bytes, of which byte r has, two bits
// each from the lowest up, rows r, r + rows / 4, ...: 0, 1, 2 for -1, 0, 1; and M.weight_scale, one
// number that they are multiplied (or divided) by.
#pragma once

#include <memory>

#include "weights/hub_matrix.h"

namespace headrace {

// Errors as HubMatrix::create().
Result<std::unique_ptr<HubMatrix>> open_hub_ternary(const HubTensors& tensors,
                                                    const HubQuantisation& quantisation);

}  // namespace headrace
