// The two passes over a row of logits that sampling and log-probabilities are made of, one set for
// each instruction set. Plain declarations only: files for one instruction set include this.
#pragma once

#include <cstdint>

namespace headrace {

inline constexpr int64_t kLogitBlock = 64;  // 768 blocks for a vocabulary of 49,152

struct LogitMath {
  // Largest value of each block, block_max[ceil(count / 64)]. Returns whether a value is NaN.
  bool (*block_maxima)(const float* row, int64_t count, float* block_max);
  // weights[i] = exp((row[i] - largest) * factor), and their sum over each block.
  void (*exp_weights)(const float* row, int64_t count, float largest, float factor, float* weights,
                      float* block_sum);
};

extern const LogitMath kLogitMathReference;
extern const LogitMath kLogitMathAvx2;
extern const LogitMath kLogitMathAvx512;

}  // namespace headrace
