// Mamba-2 (Dao and Gu, 2024): z, x, B, C and the time steps are one product; x, B and C go through
// a short convolution by channel and SiLU, then the selective scan (ops/states/ssd_scan.h), whose
// rows are gated by z, normalised (ops/rows/gated_norm.h) and multiplied by the last matrix. It
// keeps the convolution's last rows and a matrix a head, in f32.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/rows/gated_norm.h"
#include "ops/states/ssd_scan.h"

namespace headrace {

// Of the input, and of what the first product makes of it (Falcon-H1).
struct Mamba2Scales {
  float in = 1.0f;
  float z = 1.0f, x = 1.0f, b = 1.0f, c = 1.0f, dt = 1.0f;
};

struct Mamba2Spec {
  SsdHeads heads;
  int32_t taps = 4;
  bool conv_bias = true;
  bool in_bias = false;  // not together with a scale of the input
  bool out_bias = false;
  GatedNorm norm = GatedNorm::kBehindGate;  // over the heads of a group
  float norm_eps = 0.0f;
  float dt_min = 0.0f;
  float dt_max = std::numeric_limits<float>::infinity();
  bool rate_is_log = false;  // the file has log(-rate) in ssm_a
  Mamba2Scales scales = {};
};

// Tensors ssm_in (rows of z, x, B, C, dt), ssm_conv1d, ssm_dt.bias, ssm_a, ssm_d, ssm_norm,
// ssm_out.
std::unique_ptr<Mixer> make_part(const Mamba2Spec& spec, int64_t hidden);

}  // namespace headrace
