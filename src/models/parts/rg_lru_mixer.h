// Griffin's recurrent block (De et al., 2024; RecurrentGemma): x and a gate are one product; x goes
// through a short convolution by channel, of which the gates of the recurrence are made, head by
// head; the recurrence (ops/states/rg_lru.h), times the gate, is multiplied by the last matrix. It
// keeps the convolution's last rows and a number a channel, in f32. Every rank has all of it.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct RgLruSpec {
  int32_t channels = 0;
  int32_t heads = 0;  // divides them
  int32_t taps = 4;
  Activation activation = Activation::kGeluTanh;  // of the gate
};

// Tensors lru_x, lru_gate, lru_conv1d, lru_in_gate and lru_forget_gate (a matrix and a bias of each
// head), lru_a, lru_out.
std::unique_ptr<Mixer> make_part(const RgLruSpec& spec, int64_t hidden);

}  // namespace headrace
