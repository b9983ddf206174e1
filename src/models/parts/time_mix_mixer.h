// RWKV-7's attention without keys and values of old tokens (Peng et al., 2025): each row is mixed
// with the one before it in six ways (ops/states/token_shift.h), of which r, k, v and, through two
// matrices of low rank each, decays, rates, gates of values and of rows are made; heads keep a
// matrix each (ops/states/wkv7.h). All layers but the first mix the first one's values into theirs.
// It keeps a sequence's last row, and the heads' matrices. Every rank has all of it.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/states/wkv7.h"

namespace headrace {

struct TimeMixSpec {
  Wkv7Heads heads;  // heads * head_dim is the width of rows
  int32_t decay_rank = 0;
  int32_t rate_rank = 0;
  int32_t value_rank = 0;
  int32_t gate_rank = 0;
  float norm_eps = 0.0f;
  bool first = false;  // of the layers: its values are carried to the others
  bool shifts_joined =
      false;  // time_mix_lerp_fused has the rows of time_mix_lerp_r, _w, _k, _v, _a, _g
};

// Tensors time_mix_lerp_*, time_mix_receptance, _key, _value, _output, _w0 to _w2, _a0 to _a2, _v0
// to _v2 (but in the first layer), _g1, _g2, _k_k, _k_a, _r_k, _ln.
std::unique_ptr<Mixer> make_part(const TimeMixSpec& spec, int64_t hidden);

}  // namespace headrace
