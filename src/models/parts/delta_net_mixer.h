// Gated DeltaNet (Yang et al., 2024), as Qwen3-Next and Qwen3.5 have it: queries, keys and values
// go through a short convolution by channel and SiLU, then the gated delta rule
// (ops/states/delta_rule.h), whose rows are normalised, gated and multiplied by the last matrix. It
// keeps the convolution's last rows and a matrix a value head, in f32. Of ranks each has some key
// heads with their value heads and states.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/states/delta_rule.h"

namespace headrace {

enum class DeltaTensors {
  kSeparate,     // attn_qkv, attn_gate (z), ssm_beta (b), ssm_alpha (a)
  kApart,        // attn_q, attn_k, attn_v with a convolution each, else as kSeparate (OLMo-Hybrid)
  kGatesByHead,  // attn_qkv and attn_gate, and ssm_ba as kByHead (GGUF files of Qwen3-Next)
  kByHead,  // ssm_in and ssm_ba, whose rows are q, k, v, z and b, a of one key head after another
};

struct DeltaNetSpec {
  DeltaHeads heads;
  int32_t taps = 4;
  float norm_eps = 0.0f;
  DeltaTensors tensors = DeltaTensors::kSeparate;
  bool rate_is_log = false;    // the file has log(-rate) in ssm_a
  bool sigmoid_gates = false;  // of normalised rows, in place of SiLU's (Qwen 4)
  float beta_scale = 1.0f;     // 2: states may turn what they have over (OLMo-Hybrid)
};

std::unique_ptr<Mixer> make_part(const DeltaNetSpec& spec, int64_t hidden);

}  // namespace headrace
