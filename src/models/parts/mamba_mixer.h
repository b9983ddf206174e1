// Mamba (Gu and Dao, 2023): x and its gate z are one product; x goes through a short convolution by
// channel and SiLU, and gives time steps (through a matrix of low rank), B and C; then the
// selective scan (ops/states/selective_scan.h), whose gated rows are multiplied by the last matrix.
// It keeps the convolution's last rows and a state of each channel, in f32.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/states/selective_scan.h"

namespace headrace {

struct MambaSpec {
  int32_t inner = 0;      // channels
  int32_t state_dim = 0;  // of each
  int32_t dt_rank = 0;
  int32_t taps = 4;
  bool conv_bias = true;
  bool bias = false;  // of the first and the last matrix
  ScanNorms norms =
      ScanNorms::kNone;  // of the low rank's rows, B and C: ssm_dt_norm, ssm_b_norm...
  float norm_eps = 0.0f;
  bool rate_is_log = false;  // the file has log(-rate) in ssm_a
};

// Tensors ssm_in (rows of x, z), ssm_conv1d, ssm_x (rows of dt, B, C), ssm_dt, ssm_a, ssm_d,
// ssm_out.
std::unique_ptr<Mixer> make_part(const MambaSpec& spec, int64_t hidden);

}  // namespace headrace
