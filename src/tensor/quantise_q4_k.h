// Floats into a block of Q4_K.
#pragma once

#include <cstddef>

namespace headrace {

// Writes the 144 bytes of a block that stands for x[256]. Scale and minimum of each part of 32 are
// those of least squared error, weighted by |x| + the part's root mean square (large weights matter
// more), over several grids; then they are rounded to 6 bits under the block's two halves, and
// quants are the nearest of what these can say. REQUIRES: finite values below half's range
void quantise_q4_k(const float* x, std::byte* block);

}  // namespace headrace
