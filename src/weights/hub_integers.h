// Weights of 4 and 8 bits with a scale, and mostly a zero point, for each group of columns of a
// row: w = scale (q - zero), q unsigned. How the numbers lie, by method (K columns, N rows, G
// groups; int32 words of 8 or 4 numbers, the first in the lowest bits):
//
//   GPTQ                quants [K / 8, N] down the columns, zeros [G, N / 8] (stored less 1 before
//                       version 2, with 4 bits 15 stands for 0), scales [G, N]
//   AWQ                 quants [K, N / 8], zeros [G, N / 8], both with the numbers of a word in the
//                       order 0 2 4 6 1 3 5 7, scales [G, N]
//   pack-quantized      quants [N, K / 8], zeros [N / 8, G] or int8 [N, G], scales [N, G]
//   int-quantized       int8 quants [N, K], zeros int8 [N, G], scales [N, G]
//
// The int8 numbers are 2^(bits - 1) less. (AutoGPTQ's qlinear_cuda.py, AutoAWQ's packing_utils.py,
// compressed-tensors' pack_quantized.py.)
#pragma once

#include <memory>

#include "weights/hub_matrix.h"

namespace headrace {

// REQUIRES: quants and scales
Result<std::unique_ptr<HubMatrix>> open_hub_integers(const HubTensors& tensors,
                                                     const HubQuantisation& quantisation);

}  // namespace headrace
