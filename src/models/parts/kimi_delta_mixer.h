// Kimi Delta Attention (Kimi Team, 2025), as Kimi-Linear has it: queries, keys and values go
// through a short convolution by channel and SiLU, then the delta rule whose gates are those of
// each component (ops/states/kimi_delta.h), made of the row through few columns. It keeps the
// convolution's last rows and a matrix a head, in f32. Of ranks each has some heads.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/states/kimi_delta.h"

namespace headrace {

struct KimiDeltaSpec {
  KimiDeltaHeads heads;
  int32_t taps = 4;
  float norm_eps = 0.0f;
  bool rate_is_log = false;  // the file has log(-rate) in ssm_a
  // What decays and output gates are made of has few columns: ssm_f_a and ssm_f_b, ssm_g_a and
  // ssm_g_b. Else they are made of the row at once: ssm_f_a, attn_gate (Ling 3).
  bool low_rank_gates = true;
  float decay_floor = 0.0f;  // of the logarithm of a decay, as kimi_delta has it
};

std::unique_ptr<Mixer> make_part(const KimiDeltaSpec& spec, int64_t hidden);

}  // namespace headrace
